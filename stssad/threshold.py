"""Scores to decisions, without labels."""

import math

import torch
from torch import Tensor

from .scoring import GaussianDensity


def cross_fitted_scores(Z_trn: Tensor, n_folds: int = 10, seed: int = 0) -> Tensor:
    """The score of each normal embedding under a Gaussian fitted to the other folds (n,).

    In-sample scores are far too small when there are few pictures for the dimension.
    """
    generator = torch.Generator().manual_seed(seed)
    fold = torch.randperm(len(Z_trn), generator=generator) % min(n_folds, len(Z_trn) // 2)
    scores = torch.empty(len(Z_trn), dtype=torch.float64)
    for k in range(int(fold.max()) + 1):
        scores[fold == k] = GaussianDensity().fit(Z_trn[fold != k]).score(Z_trn[fold == k])
    return scores


def threshold_for(normal_scores: Tensor, false_alarms: float) -> float:
    """The score that a share `false_alarms` of normal pictures is expected to exceed.

    The conformal quantile: the ceil((n+1)(1-rate))-th smallest of n scores, at most the largest.
    """
    if not 0 < false_alarms < 1:
        raise ValueError(f"the rate of false alarms must lie in (0, 1), got {false_alarms}")
    n = len(normal_scores)
    rank = min(n, math.ceil((n + 1) * (1 - false_alarms)))
    return float(normal_scores.sort().values[rank - 1])
