"""The studio: a page of this machine's own to look at runs, review images and teach a run."""
