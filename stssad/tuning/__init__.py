"""Tuning `a` to the pool: Algorithm 1 of the paper, and the short loop for a frozen encoder."""
