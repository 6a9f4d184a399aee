"""How high unseen normal images score: the distribution that every decision rests on.

Up to a high score it is the scores themselves; beyond, few images or none say how the tail goes
on, and it is taken to fall exponentially. The largest scores don't enter its scale: a training set
holds odd images, and a threshold just above the oddest finds nothing.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ScoreArray = npt.NDArray[np.float64]
TAIL = 0.1  # of normal images, from whose scores the tail is estimated
FEWEST_IN_TAIL = 8
SET_ASIDE = 0.2  # of the tail's scores, the largest: they count as at least as large as the next
BEYOND = 0.1  # of 1/(n + 1), the lowest rate that n images show themselves: as far as the tail goes


@dataclass(frozen=True)
class NormalTail:
    """Scores of n unseen normal images, ordered, and the tail from the score `start` on: k of them
    lie above it, by `scale` on average.

    The tail's quantiles are predictive: they allow for the error of a scale that was estimated
    from k scores, so that a rate is right on average also where k is small (docs/decisions.md).
    """

    ordered: ScoreArray
    start: float
    scale: float
    k: int

    @staticmethod
    def of(scores: ScoreArray) -> "NormalTail":
        ordered = np.sort(np.asarray(scores, dtype=np.float64))
        n = len(ordered)
        k = min(max(FEWEST_IN_TAIL, round(TAIL * n)), n // 2)
        if k == 0:
            return NormalTail(ordered, float(ordered[-1]), 0.0, 0)
        start = float(ordered[n - k - 1])
        return NormalTail(ordered, start, scale_above(ordered[n - k :] - start), k)

    def __len__(self) -> int:
        return len(self.ordered)

    @property
    def share(self) -> float:
        """Of normal images that score above `start`."""
        return (self.k + 1) / (len(self) + 1)

    @property
    def lowest_rate(self) -> float:
        """The lowest false alarm rate that so few images support."""
        return BEYOND / (len(self) + 1)

    def p_values(self, scores: ScoreArray) -> ScoreArray:
        """For each score the share of unseen normal images that score as high or higher.

        Conformal up to the tail's start: (1 + number as high) / (1 + n).
        """
        n = len(self)
        n_above = n - np.searchsorted(self.ordered, scores, side="left")
        counted: ScoreArray = (1 + n_above) / (1 + n)
        if self.scale == 0:
            return counted
        excess = scores - self.start
        tail = self.share * (1 + np.maximum(excess, 0) / (self.scale * self.k)) ** -self.k
        return np.where(excess > 0, tail, counted)

    def threshold(self, rate: float) -> float:
        """The score that a share `rate` of unseen normal images is expected to exceed."""
        if not 0 < rate < 1:
            raise ValueError(f"the false alarm rate must lie in (0, 1), got {rate}")
        rate, n = max(rate, self.lowest_rate), len(self)
        if rate >= self.share or self.scale == 0:
            return float(self.ordered[min(n, math.ceil((n + 1) * (1 - rate))) - 1])
        return float(self.start + self.scale * self.k * ((self.share / rate) ** (1 / self.k) - 1))

    def rate(self, threshold: float) -> float:
        """The share of unseen normal images above a threshold, never quite 0 or 1."""
        share = float(self.p_values(np.array([threshold]))[0])
        return min(max(share, 1e-9), 1 - 0.5 / (len(self) + 1))


def scale_above(excess: ScoreArray) -> float:
    """The scale of an exponential from its k values in order, the largest of them censored: of
    those it is only known that they exceed the largest of the rest."""
    k = len(excess)
    n_censored = min(max(1, round(SET_ASIDE * k)), k - 1)
    seen = excess[: k - n_censored]
    return float((seen.sum() + n_censored * seen[-1]) / len(seen))
