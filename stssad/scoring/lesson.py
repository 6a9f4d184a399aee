"""What the pool's own outliers teach: the direction that they share.

Legend: w whitened embeddings; u = w/|w|; c the mean of u_i·u_j over pairs i ≠ j.

If outliers go anywhere, c is 0 in expectation, and if all go one way it is 1: pairs are of
different images, so that none bears itself out. c estimates the squared length of the mean u, the
share of the outliers' energy along it (docs/beyond-the-paper.md).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .whitening import Whitening

FEWEST_OUTLIERS = 3
OUTLIER_RATE = 0.01  # of normal images that would count among the pool's outliers
# An average one of the directions in which images differ has a hundredth of the energy, or so.
DIRECTIONS = 100.0


def outlier_limit(normal_scores: Tensor) -> float:
    """The score above which images of the pool teach: what one normal image in a hundred exceeds,
    or, where there are too few, Student's t of their scores, which are logarithms."""
    from scipy.stats import t as student  # slow to import

    n = len(normal_scores)
    rank = math.ceil((n + 1) * (1 - OUTLIER_RATE))
    if rank <= n:
        return float(normal_scores.sort().values[rank - 1])
    if n < 2:
        return float(normal_scores.max())
    scores = normal_scores.numpy()
    spread = scores.std(ddof=1) * math.sqrt(1 + 1 / n)
    return float(scores.mean() + student.ppf(1 - OUTLIER_RATE, n - 1) * spread)


@dataclass(frozen=True)
class Lesson:
    """How many outliers agree how well on a direction, and how much more squares along it count."""

    n_outliers: int
    agreement: float  # c
    weight: float


def lesson_of(
    outliers: Tensor, whitening: Whitening, directions: float = DIRECTIONS
) -> tuple[Tensor | None, Lesson]:
    """The shift (d,), not whitened, that embeddings (n, d) of the pool's outliers share.

    Nothing from fewer than three.
    """
    n = len(outliers)
    if n < FEWEST_OUTLIERS:
        return None, Lesson(n, 0.0, 0.0)
    assert whitening.mean is not None
    lengths = torch.linalg.vector_norm(whitening(outliers), dim=1).clamp_min(1e-300)
    away = outliers.to(whitening.mean.device).double() - whitening.mean
    # The mean of u before it is whitened: densities of other folds whiten it in their own way.
    shift = (away / lengths[:, None]).mean(dim=0)
    squared = float(whitening.shift(shift).square().sum())
    agreement = max(0.0, (n * squared - 1) / (n - 1))
    return shift, Lesson(n, agreement, agreement * directions)
