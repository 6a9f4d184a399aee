"""One run to one self-contained HTML page."""
