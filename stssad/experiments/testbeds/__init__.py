"""Tasks with a known answer: what to train on, what to tune on, and what to be judged by."""
