"""Features to one score for each image, and scores to decisions."""
