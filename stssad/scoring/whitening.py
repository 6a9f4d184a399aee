"""Coordinates in which normal images differ alike in all directions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .gaussian import GaussianDensity
from .part import random_folds


@dataclass(frozen=True)
class Whitening:
    """By the training images' shrunk covariance."""

    mean: Tensor
    cholesky: Tensor

    @staticmethod
    def of(Z_trn: Tensor) -> "Whitening":
        density = GaussianDensity().fit(Z_trn)
        assert density.mean is not None and density.cholesky is not None
        return Whitening(density.mean, density.cholesky)

    def shift(self, difference: Tensor) -> Tensor:
        """A difference of embeddings (d,) or (n, d), whitened; differentiable."""
        rows = difference.reshape(-1, difference.shape[-1]).double()
        cholesky = self.cholesky.to(rows.device)
        solved: Tensor = torch.linalg.solve_triangular(cholesky, rows.T, upper=False)
        return solved.T.reshape(difference.shape)

    def __call__(self, Z: Tensor) -> Tensor:
        """Embeddings (n, d), whitened and centred."""
        return self.shift(Z - self.mean.to(Z.device))


def cross_fitted(Z_trn: Tensor, seed: int = 0) -> Tensor:
    """Training embeddings (n, d), each whitened by the others.

    In sample, whitened variance is far below that of new images where n is near d.
    """
    fold = random_folds(len(Z_trn), seed)
    whitened = torch.empty(Z_trn.shape, dtype=torch.float64)
    for k in range(int(fold.max()) + 1):
        whitened[fold == k] = Whitening.of(Z_trn[fold != k])(Z_trn[fold == k].double())
    return whitened


def effective_dimension(whitened: Tensor) -> float:
    """Over how many directions images that the whitening hasn't seen spread: (Σλ)² / Σλ².

    Far fewer than there are coordinates where normal images are fewer: whitening knows only the
    directions that these have shown.
    """
    covariance = torch.cov(whitened.T)
    return float(covariance.trace() ** 2 / covariance.square().sum())
