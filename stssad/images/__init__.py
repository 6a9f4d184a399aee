"""Image files and arrays to tensors; `decode` is the one place that opens an image file."""
