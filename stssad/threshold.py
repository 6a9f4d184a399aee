"""Scores to decisions, without labels.

Everything here rests on held-out normal pictures: normal ones that the detector was not trained on.
A new normal picture scores like one of them, whatever the detector has learned; scores of training
pictures are far too small.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .scoring import GaussianDensity, random_folds

Scores = npt.NDArray[np.float64]
HIGH_QUANTILE = 0.9  # contamination is judged by the pictures above this quantile of normal ones


def held_out_split(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Which of n normal pictures to train on and which to hold out, each in order."""
    n_held = round(share * n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[n_held:].sort().values, order[:n_held].sort().values


def cross_fitted_scores(Z_trn: Tensor, n_folds: int = 10, seed: int = 0) -> Scores:
    """For when nothing was held out: each embedding under a Gaussian fitted to the other folds.

    The Gaussian hasn't seen the picture, but the detector has, so these are still a little small.
    """
    fold = random_folds(len(Z_trn), seed, n_folds)
    scores = torch.empty(len(Z_trn), dtype=torch.float64)
    for k in range(int(fold.max()) + 1):
        scores[fold == k] = GaussianDensity().fit(Z_trn[fold != k]).score(Z_trn[fold == k])
    crossed: Scores = scores.numpy()
    return crossed


def threshold_for(normal_scores: Scores, false_alarms: float, floor: float) -> float:
    """The score that a share `false_alarms` of new normal pictures is expected to exceed.

    With n >= 1/rate - 1 normal scores it is their conformal quantile, the ceil((n+1)(1-rate))-th
    smallest, whose rate is right on average for any distribution. With fewer the wanted quantile
    lies beyond the largest of them, and the tail is taken to be log-normal above `floor`, the
    score of the Gaussian's centre: the predictive quantile of Student's t for the log score.
    Scores without a floor (-inf) are logarithms already.
    """
    if not 0 < false_alarms < 1:
        raise ValueError(f"the rate of false alarms must lie in (0, 1), got {false_alarms}")
    n = len(normal_scores)
    rank = math.ceil((n + 1) * (1 - false_alarms))
    if rank <= n:
        return float(np.sort(normal_scores)[rank - 1])
    return _log_normal_quantile(normal_scores, false_alarms, floor)


def _log_normal_quantile(scores: Scores, rate: float, floor: float) -> float:
    from scipy.stats import t as student  # slow to import

    n = len(scores)
    if n < 2:
        return float(scores.max())
    is_log = math.isinf(floor)
    logs = scores if is_log else np.log(np.maximum(scores - floor, 1e-12))
    spread = logs.std(ddof=1) * math.sqrt(1 + 1 / n)
    quantile = float(logs.mean() + student.ppf(1 - rate, n - 1) * spread)
    return quantile if is_log else floor + math.exp(quantile)


def normal_share_above(scores: Scores, normal_scores: Scores) -> Scores:
    """For each score, the share of normal pictures that score as high or higher: a p-value.

    (1 + number above) / (1 + n): a new normal picture falls below p with probability at most p.
    """
    ordered = np.sort(normal_scores)
    n_above = len(ordered) - np.searchsorted(ordered, scores, side="left")
    share: Scores = (1 + n_above) / (1 + len(ordered))
    return share


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
                "the pool looks clean: no more of its pictures score high than of held-out normal "
                f"ones (at most {100 * self.high:.0f} % anomalies)"
            )
        return (
            f"about {100 * self.estimate:.0f} % of the pool look anomalous "
            f"({100 * self.low:.0f} to {100 * self.high:.0f} %)"
        )


def contamination(pool_scores: Scores, normal_scores: Scores, n_draws: int = 4000) -> Contamination:
    """How much of the pool is anomalous, from how many of its scores exceed those of normal ones.

    With t the k-th smallest of m normal scores, a new normal picture exceeds t with probability
    q ~ Beta(m+1-k, k), for any distribution. If a share π of the pool is anomalous and exceeds t,
    the pool exceeds it with probability p = π + (1-π)q, so π = (p-q)/(1-q); p is Beta by the count
    in the pool. Anomalies below t are not seen: the estimate is then too low, never too high.
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
