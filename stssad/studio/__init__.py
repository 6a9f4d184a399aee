"""The studio: a local page to look at runs, review images and refit."""
