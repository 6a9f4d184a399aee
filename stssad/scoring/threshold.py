"""Scores to decisions, without labels.

Everything here rests on normal images that the detector was not fitted to, held out or
cross-fitted: a new normal image scores like one of them, whatever the detector has learned. Scores
of training images are far too small.
"""

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

BORDERLINE = 0.03  # of normal images score above the lowest borderline one
MOVED = (0.2, 1.5)  # how far labels may move the false alarm rate
ScoreArray = npt.NDArray[np.float64]


def held_out_split(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Which of n normal images to fit to and which to hold out, each in order."""
    n_held = round(share * n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[n_held:].sort().values, order[:n_held].sort().values


def threshold_for(normal_scores: ScoreArray, false_alarms: float, floor: float) -> float:
    """The score that a share `false_alarms` of new normal images is expected to exceed.

    With n >= 1/rate - 1 normal scores it is their conformal quantile, the ceil((n+1)(1-rate))-th
    smallest, whose rate is right on average for any distribution. With fewer the wanted quantile
    lies beyond the largest of them, and the tail is taken to be log-normal above `floor`, the
    score of the Gaussian's centre: the predictive quantile of Student's t for the log score.
    Scores without a floor (-inf) are logarithms already.
    """
    if not 0 < false_alarms < 1:
        raise ValueError(f"the false alarm rate must lie in (0, 1), got {false_alarms}")
    n = len(normal_scores)
    rank = math.ceil((n + 1) * (1 - false_alarms))
    if rank <= n:
        return float(np.sort(normal_scores)[rank - 1])
    return _log_normal_quantile(normal_scores, false_alarms, floor)


def _log_normal_quantile(scores: ScoreArray, rate: float, floor: float) -> float:
    from scipy.stats import t as student  # slow to import

    n = len(scores)
    if n < 2:
        return float(scores.max())
    is_log = math.isinf(floor)
    logs = scores if is_log else np.log(np.maximum(scores - floor, 1e-12))
    spread = logs.std(ddof=1) * math.sqrt(1 + 1 / n)
    quantile = float(logs.mean() + student.ppf(1 - rate, n - 1) * spread)
    return quantile if is_log else floor + math.exp(quantile)


def reviewed_threshold(
    normal_scores: ScoreArray,
    good: ScoreArray,
    defects: ScoreArray,
    false_alarms: float,
    floor: float,
) -> float:
    """The threshold that errs least on scores of images that were called good or defective, in the
    middle of those that do: between the ones for a fifth of the false alarm rate that was asked for
    and for half as much again."""
    high, low = (
        threshold_for(normal_scores, min(share * false_alarms, 0.5), floor) for share in MOVED
    )
    tried = np.linspace(low, high, 201)
    missed = (defects[:, None] <= tried).sum(axis=0)
    wrong = (good[:, None] > tried).sum(axis=0)
    return float(tried[missed + wrong == (missed + wrong).min()].mean())


def p_values(scores: ScoreArray, normal_scores: ScoreArray) -> ScoreArray:
    """For each score, the share of normal images that score as high or higher (conformal).

    (1 + number above) / (1 + n): a new normal image falls below p with probability at most p.
    """
    ordered = np.sort(normal_scores)
    n_above = len(ordered) - np.searchsorted(ordered, scores, side="left")
    share: ScoreArray = (1 + n_above) / (1 + len(ordered))
    return share


def rate_above(normal_scores: ScoreArray, threshold: float) -> float:
    """The share of normal images above a threshold, counting one more on either side."""
    n_above = int((normal_scores > threshold).sum())
    return (n_above + 0.5) / (len(normal_scores) + 1)


def borderline(
    scores: ScoreArray, normal_scores: ScoreArray, threshold: float, expected: int
) -> float:
    """Scores from here to the threshold are worth a look: as many images as the estimate expects to
    be anomalous, and those that few normal images exceed."""
    lowest = float(np.quantile(normal_scores, 1 - BORDERLINE))
    if 0 < expected <= len(scores):
        lowest = min(lowest, float(np.sort(scores)[::-1][expected - 1]))
    return min(lowest, threshold)


def shares_of_two(scores: ScoreArray, threshold: float, spread: float) -> ScoreArray:
    """(n, 2), normal and anomaly: a logistic of the score, ½ at the threshold."""
    steps = (scores - threshold) / max(spread, 1e-12)
    anomaly = 1 / (1 + np.exp(-np.clip(steps, -500, 500)))
    return np.stack([1 - anomaly, anomaly], axis=1)
