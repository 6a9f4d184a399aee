"""How much of the pool is anomalous, without labels."""

import math
from dataclasses import dataclass

import numpy as np

from .threshold import ScoreArray

HIGH_QUANTILE = 0.9  # contamination is judged by the images above this quantile of normal ones


@dataclass(frozen=True)
class Contamination:
    """The share of the pool that is anomalous in a way the detector sees; 95 % interval."""

    estimate: float
    low: float
    high: float

    @property
    def looks_clean(self) -> bool:
        return self.low == 0

    def in_words(self) -> str:
        if self.looks_clean:
            return (
                "the pool looks clean: no more of its images score high than of unseen normal "
                f"ones (at most {100 * self.high:.0f} % anomalies)"
            )
        return (
            f"about {100 * self.estimate:.0f} % of the pool look anomalous "
            f"({100 * self.low:.0f} to {100 * self.high:.0f} %)"
        )


def contamination(
    pool_scores: ScoreArray, normal_scores: ScoreArray, n_draws: int = 4000
) -> Contamination:
    """How much of the pool is anomalous, from how many of its scores exceed those of normal ones.

    With t the k-th smallest of m normal scores, a new normal image exceeds t with probability
    q ~ Beta(m+1-k, k), for any distribution. If a share π of the pool is anomalous and exceeds t,
    the pool exceeds it with probability p = π + (1-π)q, so π = (p-q)/(1-q); p is Beta by the count
    in the pool. Anomalies below t are not seen, which makes the estimate too low; a direction that
    was learned from the same pool makes it too high.
    """
    rng = np.random.default_rng(0)
    m = len(normal_scores)
    k = max(1, math.ceil(HIGH_QUANTILE * m))
    t = np.sort(normal_scores)[k - 1]
    n_above, n = int((pool_scores > t).sum()), len(pool_scores)
    q = rng.beta(m + 1 - k, k, n_draws)
    p = rng.beta(n_above + 0.5, n - n_above + 0.5, n_draws)
    share = np.clip((p - q) / (1 - q), 0, 1)
    low, estimate, high = np.quantile(share, [0.025, 0.5, 0.975])
    return Contamination(float(estimate), float(low), float(high))
