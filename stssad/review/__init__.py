"""What a reviewer says of images, and what a run learns from it."""
