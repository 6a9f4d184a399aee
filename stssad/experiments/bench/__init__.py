"""Methods x tasks x seeds: run, kept line by line, and read back as tables, figures, a document."""
