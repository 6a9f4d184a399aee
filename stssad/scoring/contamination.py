"""How much of the pool is anomalous, without labels."""

import math
from dataclasses import dataclass

import numpy as np

from .threshold import ScoreArray

QUANTILES = (0.9, 0.97, 0.99)  # of normal scores: contamination is judged by the images above


@dataclass(frozen=True)
class Contamination:
    """The share of the pool that is anomalous in a way the detector sees; 95 % interval."""

    estimate: float
    low: float
    high: float

    @property
    def looks_clean(self) -> bool:
        return self.low == 0

    def summarise(self) -> str:
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
    in the pool. Few anomalies show at a high t, which normal images hardly exceed; a low t misses
    fewer of them. So the lower end is the best of several t (at a level that allows for the
    choice), with its estimate, and the upper end that of the lowest t.
    """
    rng = np.random.default_rng(0)
    shares = [_shares(pool_scores, normal_scores, q, n_draws, rng) for q in QUANTILES]
    lows = [float(np.quantile(share, 0.025 / len(QUANTILES))) for share in shares]
    best = int(np.argmax(lows)) if max(lows) > 0 else 0
    estimate = float(np.median(shares[best]))
    high = max(float(np.quantile(shares[0], 0.975)), float(np.quantile(shares[best], 0.975)))
    return Contamination(estimate, lows[best], high)


def _shares(
    pool_scores: ScoreArray,
    normal_scores: ScoreArray,
    quantile: float,
    n_draws: int,
    rng: np.random.Generator,
) -> ScoreArray:
    """Draws of π at one t."""
    m, n = len(normal_scores), len(pool_scores)
    k = max(1, math.ceil(quantile * m))
    t = np.sort(normal_scores)[k - 1]
    n_above = int((pool_scores > t).sum())
    q = rng.beta(m + 1 - k, k, n_draws)
    p = rng.beta(n_above + 0.5, n - n_above + 0.5, n_draws)
    share: ScoreArray = np.clip((p - q) / (1 - q), 0, 1)
    return share
