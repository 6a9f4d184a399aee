"""People's labels of a run's images, in which order they are asked for, and how a run agrees."""
