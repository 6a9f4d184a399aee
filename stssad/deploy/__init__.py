"""A fitted model at work: export, engine, watch, drift, heatmaps."""
