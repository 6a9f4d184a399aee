"""Embeddings to one anomaly score for each picture: the Gaussian density estimator (Sec. 5)."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .layout import canonical

N_FOLDS = 5


@dataclass
class GaussianDensity:
    """Negative log-likelihood under a Gaussian with Ledoit-Wolf covariance, larger = stranger.

    ½d² + const rather than the distance d: the ranking is the same, but the variance of the scores,
    by which starts are compared, is not. Shrinkage, because with fewer pictures than dimensions the
    plain covariance is singular.

    With a `shift` (d,) that anomalies are known to make, squares along it count 1 + `stretch` times
    (docs/beyond-the-paper.md): ½|w|² + ½ stretch·max(0, u·w)², w whitened, u the whitened shift's
    direction.
    """

    mean: Tensor | None = None
    cholesky: Tensor | None = None
    shift: Tensor | None = None
    stretch: float = 0.0

    def fit(self, Z: Tensor) -> "GaussianDensity":
        """From the embeddings (n, d) of normal pictures, n at least 2."""
        from sklearn.covariance import ledoit_wolf  # slow to import

        if len(Z) < 2:
            raise ValueError(f"a Gaussian needs at least 2 embeddings, got {len(Z)}")
        Z = Z.detach().cpu().double()
        covariance = torch.from_numpy(ledoit_wolf(Z.numpy())[0])
        # A floor for embeddings that are constant in some dimension, far below any that are not.
        floor = 1e-10 * covariance.diagonal().mean().clamp_min(1e-10)
        regular = covariance + floor * torch.eye(len(covariance), dtype=covariance.dtype)
        self.mean = canonical(Z.mean(dim=0))
        self.cholesky = canonical(torch.linalg.cholesky(regular))
        return self

    @property
    def least(self) -> float:
        """The score of the Gaussian's centre, below which there is none."""
        assert self.cholesky is not None
        log_det = 2 * self.cholesky.diagonal().log().sum()
        return float((log_det + len(self.cholesky) * math.log(2 * math.pi)) / 2)

    def score(self, Z: Tensor) -> Tensor:
        """Scores (n,) in float64 of embeddings (n, d)."""
        return self.distance(Z) + self.least

    def distance(self, Z: Tensor) -> Tensor:
        """The score above the least one: ½|w|² and, if stretched, what the shift adds."""
        if self.mean is None or self.cholesky is None:
            raise ValueError("this GaussianDensity has not been fitted; call fit(Z) first")
        w = self._whitened(Z.detach().cpu().double() - self.mean)
        distance: Tensor = w.square().sum(dim=0) / 2
        if self.shift is None or self.stretch == 0:
            return distance
        u = self._whitened(self.shift.double()[None])[:, 0]
        along: Tensor = (u @ w) / torch.linalg.vector_norm(u).clamp_min(1e-300)
        stretched: Tensor = distance + self.stretch * along.clamp_min(0).square() / 2
        return stretched

    def _whitened(self, rows: Tensor) -> Tensor:
        """(d, n) of differences (n, d)."""
        assert self.cholesky is not None
        whitened: Tensor = torch.linalg.solve_triangular(self.cholesky, rows.T, upper=False)
        return whitened


def random_folds(n: int, seed: int, n_folds: int = N_FOLDS) -> Tensor:
    """A fold's number for each of n pictures, at least two pictures in each fold."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(n, generator=generator) % min(n_folds, n // 2)


def cross_fitted_distances(density: GaussianDensity, Z_trn: Tensor, fold: Tensor) -> Tensor:
    """The distance (n,) of each training picture from a density that hasn't seen its fold."""
    distances = torch.empty(len(Z_trn), dtype=torch.float64)
    for k in range(int(fold.max()) + 1):
        of_others = replace(density).fit(Z_trn[fold != k])
        distances[fold == k] = of_others.distance(Z_trn[fold == k])
    return distances


def score_variance(scores: Tensor) -> float:
    """S(θ), the criterion by which starts are compared: the larger, the better (Sec. 4.3)."""
    return float(scores.double().var(correction=0))
