"""Embeddings to one anomaly score for each picture: the Gaussian density estimator (Sec. 5)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class GaussianDensity:
    """Negative log-likelihood under a Gaussian with Ledoit-Wolf covariance, larger = stranger.

    ½d² + const rather than the distance d: the ranking is the same, but the variance of the scores,
    by which starts are compared, is not. Shrinkage, because with fewer pictures than dimensions the
    plain covariance is singular.
    """

    mean: Tensor | None = None
    cholesky: Tensor | None = None

    def fit(self, Z: Tensor) -> "GaussianDensity":
        """From the embeddings (n, d) of normal pictures, n at least 2."""
        from sklearn.covariance import ledoit_wolf  # slow to import

        if len(Z) < 2:
            raise ValueError(f"a Gaussian needs at least 2 embeddings, got {len(Z)}")
        Z = Z.detach().cpu().double()
        covariance = torch.from_numpy(ledoit_wolf(Z.numpy())[0])
        # A floor for embeddings that are constant in some dimension, far below any that are not.
        floor = 1e-10 * covariance.diagonal().mean().clamp_min(1e-10)
        self.mean = Z.mean(dim=0)
        self.cholesky = torch.linalg.cholesky(covariance + floor * torch.eye(len(covariance)))
        return self

    @property
    def least(self) -> float:
        """The score of the Gaussian's centre, below which there is none."""
        assert self.cholesky is not None
        log_det = 2 * self.cholesky.diagonal().log().sum()
        return float((log_det + len(self.cholesky) * math.log(2 * math.pi)) / 2)

    def score(self, Z: Tensor) -> Tensor:
        """Scores (n,) in float64 of embeddings (n, d)."""
        if self.mean is None or self.cholesky is None:
            raise ValueError("this GaussianDensity has not been fitted; call fit(Z) first")
        centered = Z.detach().cpu().double() - self.mean
        whitened: Tensor = torch.linalg.solve_triangular(self.cholesky, centered.T, upper=False)
        return whitened.square().sum(dim=0) / 2 + self.least


def score_variance(scores: Tensor) -> float:
    """S(θ), the criterion by which starts are compared: the larger, the better (Sec. 4.3)."""
    return float(scores.double().var(correction=0))
