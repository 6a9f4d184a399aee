"""The Gaussian density estimator: embeddings to one anomaly score for each image (Sec. 5)."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from ..features import Features
from ..layout import canonical
from .part import PartScores, random_folds


class GaussianDensity(nn.Module):
    """Negative log-likelihood under a Gaussian with Ledoit-Wolf covariance.

    ½d² + const rather than the distance d: the ranking is the same, but the variance of the scores,
    by which restarts are compared, is not. Shrinkage, because with fewer images than dimensions the
    plain covariance is singular.

    With a `shift` (d,) that anomalies are known to make, squares along it are up-weighted
    (docs/beyond-the-paper.md): ½|w|² + ½ weight·max(0, u·w)², w whitened, u the whitened shift's
    direction.
    """

    def __init__(self, shift: Tensor | None = None, weight: float = 0.0) -> None:
        super().__init__()
        self.mean: Tensor | None
        self.cholesky: Tensor | None
        self.shift: Tensor | None
        self.weight: Tensor
        self.register_buffer("mean", None)
        self.register_buffer("cholesky", None)
        self.register_buffer("shift", None if shift is None else shift.double())
        self.register_buffer("weight", torch.tensor(weight, dtype=torch.float64))

    def fit(self, Z: Tensor) -> "GaussianDensity":
        """From the embeddings (n, d) of normal images, n at least 2."""
        from sklearn.covariance import ledoit_wolf  # slow to import

        if len(Z) < 2:
            raise ValueError(f"a Gaussian needs at least 2 embeddings, got {len(Z)}")
        device, Z = self.weight.device, Z.detach().cpu().double()
        covariance = torch.from_numpy(ledoit_wolf(Z.numpy())[0])
        # A floor for embeddings that are constant in some dimension, far below any that are not.
        floor = 1e-10 * covariance.diagonal().mean().clamp_min(1e-10)
        regular = covariance + floor * torch.eye(len(covariance), dtype=covariance.dtype)
        self.mean = canonical(Z.mean(dim=0)).to(device)
        self.cholesky = canonical(torch.linalg.cholesky(regular)).to(device)
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
        """The score above the least one: ½|w|² and what is added along the shift."""
        if self.mean is None:
            raise ValueError("this GaussianDensity has not been fitted; call fit(Z) first")
        w = self.whitened(Z.detach().to(self.mean.device).double() - self.mean)
        distance: Tensor = w.square().sum(dim=0) / 2
        if self.shift is None:
            return distance
        u = self.whitened(self.shift[None])[:, 0]
        along: Tensor = (u @ w) / torch.linalg.vector_norm(u).clamp_min(1e-300)
        return distance + self.weight * along.clamp_min(0).square() / 2

    def whitened(self, rows: Tensor) -> Tensor:
        """(d, n) of differences (n, d)."""
        assert self.cholesky is not None
        whitened: Tensor = torch.linalg.solve_triangular(self.cholesky, rows.T, upper=False)
        return whitened

    def crossed(self, Z_trn: Tensor, fold: Tensor) -> Tensor:
        """The distance (n,) of each training image from a density that hasn't seen its fold."""
        distances = torch.empty(len(Z_trn), dtype=torch.float64)
        for k in range(int(fold.max()) + 1):
            of_others = copy.deepcopy(self).fit(Z_trn[fold != k])
            distances[fold == k] = of_others.distance(Z_trn[fold == k]).cpu()
        return distances


class ImageGaussian(nn.Module):
    """The image-level part: how far the image's embedding is from the normal ones."""

    def __init__(self) -> None:
        super().__init__()
        self.density = GaussianDensity()

    def config(self) -> dict[str, Any]:
        return {}

    def up_weight(self, shift: Tensor, weight: float) -> None:
        """Squares along a learned shift of the embeddings count 1 + weight times."""
        self.density = GaussianDensity(shift, weight).to(self.density.weight.device)

    def fit(self, normal: Features, fold: Tensor, seed: int) -> PartScores:
        self.density.fit(normal.pooled)
        return PartScores(self.density.crossed(normal.pooled, fold))

    def forward(self, features: Features) -> PartScores:
        return PartScores(self.density.distance(features.pooled))


def cross_fitted_scores(Z_trn: Tensor, n_folds: int = 10, seed: int = 0) -> Tensor:
    """For when nothing was held out: each embedding under a Gaussian fitted to the other folds.

    The Gaussian hasn't seen the image, but the detector has, so these are still a little small.
    """
    fold = random_folds(len(Z_trn), seed, n_folds)
    scores = torch.empty(len(Z_trn), dtype=torch.float64)
    for k in range(int(fold.max()) + 1):
        scores[fold == k] = GaussianDensity().fit(Z_trn[fold != k]).score(Z_trn[fold == k])
    return scores


def score_variance(scores: Tensor) -> float:
    """S(θ), the criterion by which restarts are compared: the larger, the better (Sec. 4.3)."""
    return float(scores.double().var(correction=0))
