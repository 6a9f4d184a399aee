"""Encoders: images in [0, 1] to feature maps and embeddings. A new one is one new file."""
