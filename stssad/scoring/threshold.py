"""Scores to decisions, without labels.

Everything here rests on normal images that the detector was not fitted to, held out or
cross-fitted: a new normal image scores like one of them, whatever the detector has learned. Scores
of training images are far too small.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .tail import NormalTail, ScoreArray

BORDERLINE = 0.05  # of normal images score above the lowest borderline one
MOVED = (0.2, 1.5)  # how far labels may move the false alarm rate
LabelArray = npt.NDArray[np.int64]


def labels_above(scores: ScoreArray, threshold: float) -> LabelArray:
    """(n,) of 0 and 1, 1 = anomaly."""
    return (scores > threshold).astype(np.int64)


def held_out_split(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Which of n normal images to fit to and which to hold out, each in order."""
    n_held = round(share * n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[n_held:].sort().values, order[:n_held].sort().values


def reviewed_threshold(
    normal: NormalTail,
    good: ScoreArray,
    defects: ScoreArray,
    false_alarms: float,
    before: float = np.inf,
) -> float:
    """The threshold that errs least on scores of images that were called good or defective, in the
    middle of those that do: between the ones for a fifth of the false alarm rate that was asked for
    and for half as much again, or the pool's threshold `before` where that is lower."""
    high, low = (normal.threshold(min(share * false_alarms, 0.5)) for share in MOVED)
    low = min(low, before)
    tried = np.linspace(low, high, 201)
    missed = (defects[:, None] <= tried).sum(axis=0)
    wrong = (good[:, None] > tried).sum(axis=0)
    return float(tried[missed + wrong == (missed + wrong).min()].mean())


def borderline(scores: ScoreArray, normal: NormalTail, threshold: float, expected: int) -> float:
    """Scores from here to the threshold are worth a look: as many images as the estimate expects to
    be anomalous, and those that few normal images exceed."""
    lowest = normal.threshold(BORDERLINE)
    if 0 < expected <= len(scores):
        lowest = min(lowest, float(np.sort(scores)[::-1][expected - 1]))
    return min(lowest, threshold)


def shares_of_two(scores: ScoreArray, threshold: float, spread: float) -> ScoreArray:
    """(n, 2), normal and anomaly: a logistic of the score, ½ at the threshold."""
    steps = (scores - threshold) / max(spread, 1e-12)
    anomaly = 1 / (1 + np.exp(-np.clip(steps, -500, 500)))
    return np.stack([1 - anomaly, anomaly], axis=1)
