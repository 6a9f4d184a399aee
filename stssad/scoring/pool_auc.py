"""Which of two scores is better, where nobody knows which images of the pool are anomalous.

Let a share π of the pool be anomalous, and its other images be like the normal ones. For any
increasing function φ of where a score lies among those of normal images,

    E_pool[φ] - E_normal[φ] = π (E_anomalous[φ] - E_normal[φ]).

With φ = F, the share of normal images that score lower, this is AUC_np = 1/2 + π(AUC - 1/2): what
raises the AUROC of pool against normal images raises the AUROC (docs/beyond-the-paper.md). With
φ = F^16 it is how often an image is ahead of 16 normal ones, all of them: where few images are
anomalous, that shows a difference which the plain AUROC hides, since nearly all that varies in it
are normal images in the middle.
"""

import math
from dataclasses import dataclass

import numpy as np

from .tail import ScoreArray

AHEAD_OF = 16  # normal images


@dataclass(frozen=True)
class Sides:
    """Numbers of normal images (n,) and of the pool (m,), each by a fit that hasn't seen it."""

    normal: ScoreArray
    pool: ScoreArray

    def plus(self, other: "Sides", weight: float) -> "Sides":
        return Sides(self.normal + weight * other.normal, self.pool + weight * other.pool)

    def standardised(self) -> "Sides":
        """In standard deviations of the normal images' numbers."""
        center, spread = self.scale
        return Sides((self.normal - center) / spread, (self.pool - center) / spread)

    @property
    def scale(self) -> tuple[float, float]:
        return float(self.normal.mean()), max(float(self.normal.std()), 1e-12)

    def ahead(self) -> "Sides":
        """How likely each image is to score above all of 16 other normal images."""
        return Sides(
            shares_below(self.normal, self.normal, own=True) ** AHEAD_OF,
            shares_below(self.pool, self.normal) ** AHEAD_OF,
        )


def shares_below(scores: ScoreArray, normal: ScoreArray, own: bool = False) -> ScoreArray:
    """The share of normal images that score lower, those that score the same counted half; `own`:
    the scores are these, and none is compared with itself."""
    ordered = np.sort(normal)
    below = np.searchsorted(ordered, scores, side="left")
    up_to = np.searchsorted(ordered, scores, side="right")
    share: ScoreArray = (below + up_to - own) / (2.0 * (len(normal) - own))
    return share


@dataclass(frozen=True)
class Gain:
    """How often an image of the pool is ahead of 16 normal ones, by one score and by another."""

    before: float
    after: float
    p_value: float  # of the question whether the other score is better

    @staticmethod
    def between(before: Sides, after: Sides, n_folds: int) -> "Gain":
        """A paired test, one-sided: images are compared with themselves under the other score.

        Both come from fits to the other folds, which share images, so that their differences vary
        together; the variance is corrected for that (Nadeau and Bengio 2003: by n_test/n_train).
        """
        from scipy.stats import norm  # slow to import

        old, new = before.ahead(), after.ahead()
        of_pool, of_normal = new.pool - old.pool, new.normal - old.normal
        variance = of_pool.var(ddof=1) / len(of_pool) + of_normal.var(ddof=1) / len(of_normal)
        error = math.sqrt(variance * (1 + n_folds / (n_folds - 1)))
        z = float(of_pool.mean() - of_normal.mean()) / error if error > 0 else 0.0
        return Gain(float(old.pool.mean()), float(new.pool.mean()), float(norm.sf(z)))
