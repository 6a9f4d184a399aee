"""How much of the pool is anomalous, without labels."""

import math
from dataclasses import dataclass

import numpy as np

from .tail import ScoreArray

QUANTILES = (0.75, 0.9, 0.97, 0.99)  # of normal scores: the images above show a lower end
UPPER_QUANTILE = 0.5  # and this one the upper end: few anomalies score lower
LEVEL_LOW, LEVEL_HIGH = 0.005, 0.01  # how often either end may be wrong


@dataclass(frozen=True)
class Contamination:
    """The share of the pool that is anomalous.

    `low` is what the scores prove: anomalies that score as normal images do don't count in it, nor
    in the estimate. `high` allows for them as far as they score above half of the normal images.
    """

    estimate: float
    low: float
    high: float

    @property
    def looks_clean(self) -> bool:
        return self.low == 0

    def summarise(self) -> str:
        if self.looks_clean:
            return "no more of the pool's images score high than of unseen normal images"
        return (
            f"at least {100 * self.low:.0f} % of the pool look anomalous (estimate "
            f"{100 * self.estimate:.0f} %, at most {100 * self.high:.0f} %)"
        )


def contamination(
    pool_scores: ScoreArray, normal_scores: ScoreArray, n_draws: int = 4000
) -> Contamination:
    """How much of the pool is anomalous, from how many of its scores exceed those of normal ones.

    With t the k-th smallest of m normal scores, a new normal image exceeds t with probability
    q ~ Beta(m+1-k, k), for any distribution. If a share π of the pool is anomalous and a share s of
    those exceeds t, the pool exceeds it with probability p = πs + (1-π)q, so πs ≤ π is at least
    (p-q)/(1-q) for s = 1; p is Beta by the count in the pool. Few anomalies show at a high t, which
    normal images hardly exceed; a low t misses fewer of them. So the lower end is the best of
    several t (at a level that allows for the choice), with its estimate; and the upper end is that
    of the lowest t, where s is nearly 1.
    """
    rng = np.random.default_rng(0)
    shares = [_shares(pool_scores, normal_scores, q, n_draws, rng) for q in QUANTILES]
    lows = [float(np.quantile(share, LEVEL_LOW / len(QUANTILES))) for share in shares]
    best = int(np.argmax(lows)) if max(lows) > 0 else QUANTILES.index(0.9)
    estimate = float(np.median(shares[best]))
    widest = _shares(pool_scores, normal_scores, UPPER_QUANTILE, n_draws, rng)
    high = max(float(np.quantile(x, 1 - LEVEL_HIGH)) for x in (widest, shares[best]))
    return Contamination(estimate, max(lows[best], 0.0), high)


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
