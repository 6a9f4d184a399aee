"""Parts of the score: each sees the features of normal images, and says how unusual others are."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..features import Features, NormalFeatures

# Each normal image is scored by a fit to nine tenths of the others: with fewer, such a fit is so
# much poorer than the final one that unseen images look more unusual than they are.
N_FOLDS = 10


@dataclass(frozen=True)
class PartScores:
    """`scores` (n,), positive, larger = more anomalous; `maps` (n, h, w) where there is one."""

    scores: Tensor
    maps: Tensor | None = None


class Part(Protocol):
    """An `nn.Module` whose fitted arrays are buffers: they move with it and are saved with it.

    One whose `of_small` is true needs features of the images' smaller form.

    One that has `learn(outliers)`, from features to a `Lesson`, is shown the pool's outliers; it
    then has `crossed(normal, fold)`, which scores normal images again as `fit` does, and
    `forget()`, after which it need not.
    """

    def fit(self, normal: NormalFeatures, fold: Tensor, seed: int) -> PartScores:
        """Learn normal images, and score each as if its fold had not been seen."""

    def __call__(self, features: Features) -> PartScores:
        """Scores of a few images."""

    def config(self) -> dict[str, Any]:
        """What the constructor needs to build this part again."""


def random_folds(n: int, seed: int, n_folds: int = N_FOLDS) -> Tensor:
    """A fold's number for each of n images, at least two images in each fold."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(n, generator=generator) % min(n_folds, n // 2)
