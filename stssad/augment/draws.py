"""Random scalars for `random_value`."""

import math

import torch
from torch import Generator, Tensor


def uniform(low: float, high: float, generator: Generator) -> Tensor:
    """One number, uniform in [low, high)."""
    return low + (high - low) * torch.rand((), generator=generator)


def log_uniform(low: float, high: float, generator: Generator) -> Tensor:
    """The *logarithm* of one number that is log-uniform in [low, high)."""
    return uniform(math.log(low), math.log(high), generator)
