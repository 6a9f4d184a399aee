"""Does the pool show the kind of anomaly that the best augmentation imitates, or is it chance?

An augmentation that was tuned to a pool aligns with that pool whatever it holds. So normal images
and pool are halved. All that one half's direction depends on (whitening, choice among the initial
values, tuning) is of that half; the other half tests it.

Legend: w embeddings, whitened by the half that learns; u its direction, of unit length.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LEVEL = 0.01  # of p-values: how often a clean pool may be said to show something
Halves = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Evidence:
    """J of the chosen augmentation, and the p-value: clean pools would show as much so often.

    `tested` are the augmentation types that the two halves chose; most often the chosen one, twice.
    """

    alignment: float
    p_value: float
    tested: tuple[str, str] = ("", "")

    @property
    def fits(self) -> bool:
        return self.p_value <= LEVEL


def halves(n: int, generator: torch.Generator) -> Halves:
    """Two halves of n images, at random, each in order."""
    order = torch.randperm(n, generator=generator)
    return order[: n // 2].sort().values, order[n // 2 :].sort().values


def p_value_along(normal: Tensor, pool: Tensor, u: Tensor) -> float:
    """Of Student's t: do some of the pool (m, d) lie further along u than normal images (n, d) do?

    u and the whitening must not have seen either. The statistic is mean less median: anomalies move
    the mean, while what moves all images alike, such as light, moves both. Its variance is taken
    for the mean's, which is larger (by 1/0.57 if normal): the test is on the safe side. σ is the
    normal images': anomalies in the pool make its own larger, and hide themselves.
    """
    from scipy.stats import t as student  # slow to import

    n, m = len(normal), len(pool)
    if n < 2 or m < 1:
        return 1.0
    direction = u / torch.linalg.vector_norm(u).clamp_min(torch.finfo(u.dtype).tiny)
    of_normal, of_pool = normal @ direction, pool @ direction
    spread = of_normal.var() * (1 / m + 1 / n)
    moved = (skew_of(of_pool) - skew_of(of_normal)) / spread.sqrt().clamp_min(1e-300)
    return float(student.sf(float(moved), n - 1))


def skew_of(values: Tensor) -> Tensor:
    """Mean less median, the middle two averaged."""
    return values.mean() - torch.quantile(values, 0.5)


def combined(one: float, other: float) -> float:
    """One p-value from two that may depend on each other: twice the smaller (Bonferroni)."""
    return min(1.0, 2 * min(one, other))
