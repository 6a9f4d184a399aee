"""Parts of the score: each sees the features of normal images, and says how unusual others are."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..features import Features

N_FOLDS = 5


@dataclass(frozen=True)
class PartScores:
    """`scores` (n,), positive, larger = more anomalous; `maps` (n, h, w) where there is one."""

    scores: Tensor
    maps: Tensor | None = None


class Part(Protocol):
    """An `nn.Module` whose fitted arrays are buffers: they move with it and are saved with it.

    One that has `up_weight(shift, weight)` is told the direction that was learned from the pool.
    """

    def fit(self, normal: Features, fold: Tensor, seed: int) -> PartScores:
        """Learn normal images, and score each as if its fold had not been seen."""

    def __call__(self, features: Features) -> PartScores:
        """Scores of a few images."""

    def config(self) -> dict[str, Any]:
        """What the constructor needs to build this part again."""


def random_folds(n: int, seed: int, n_folds: int = N_FOLDS) -> Tensor:
    """A fold's number for each of n images, at least two images in each fold."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(n, generator=generator) % min(n_folds, n // 2)
