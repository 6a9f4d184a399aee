"""Cross-fitting: each normal image is scored by a fit to the other folds, as if it were new."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Each normal image is scored by a fit to nine tenths of the others: with fewer, such a fit is so
# much poorer than the final one that unseen images look more unusual than they are.
N_FOLDS = 10


@dataclass(frozen=True)
class PartScores:
    """`scores` (n,), positive, larger = more anomalous; `maps` (n, h, w) where there is one."""

    scores: Tensor
    maps: Tensor | None = None


def random_folds(n: int, seed: int, n_folds: int = N_FOLDS) -> Tensor:
    """A fold's number for each of n images, at least two images in each fold."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(n, generator=generator) % min(n_folds, n // 2)


def keep_twins_together(fold: Tensor, first: Tensor) -> Tensor:
    """The same folds, but each image in that of the `first` one that shows the same (n,): an image
    whose copy was fitted to hasn't been left out. As they were, where one fold would be left."""
    joined = joined_folds(fold, first)
    return joined if int(joined.max()) > 0 else fold


def joined_folds(fold: Tensor, first: Tensor) -> Tensor:
    """The same, also where it is one fold."""
    renumbered: Tensor = torch.unique(fold[first], return_inverse=True)[1]
    return renumbered
