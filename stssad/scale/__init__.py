"""Many images, or many product lines, on a Ray cluster."""
