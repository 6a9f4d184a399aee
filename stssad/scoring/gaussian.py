"""The Gaussian density estimator: embeddings to one anomaly score for each image (Sec. 5)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..encoders.features import Features, NormalFeatures
from .examples import Examples
from .folds import PartScores, random_folds
from .lesson import DIRECTIONS, Lesson, lesson_of
from .pool_part import PoolEmbeddings
from .whitening import N_NUISANCE, Whitening


class GaussianDensity(nn.Module):
    """Negative log-likelihood under a Gaussian with Ledoit-Wolf covariance.

    ½d² + const rather than the distance d: the ranking is the same, but the variance of the scores,
    by which restarts are compared, is not.

    With a `shift` (d,) that anomalies are known to make, squares along it are up-weighted
    (docs/beyond-the-paper.md): ½|w|² + ½ weight·max(0, u·w)², w whitened, u the whitened shift's
    direction. What resembles a labeled defect gains (`Examples`).
    """

    def __init__(
        self, shift: Tensor | None = None, weight: float = 0.0, n_nuisance: int = N_NUISANCE
    ) -> None:
        super().__init__()
        self.whitening = Whitening(n_nuisance)
        self.examples = Examples()
        self.shift: Tensor | None
        self.weight: Tensor
        self.register_buffer("shift", None if shift is None else shift.double())
        self.register_buffer("weight", torch.tensor(weight, dtype=torch.float64))

    def fit(self, Z: Tensor, light_changes: Tensor | None = None) -> "GaussianDensity":
        """From the embeddings (n, d) of normal images; what light does to some is left out."""
        self.whitening.fit(Z, light_changes)
        return self

    @property
    def least(self) -> float:
        """The score of the Gaussian's centre, below which there is none."""
        inverse = self.whitening.inverse
        assert inverse is not None
        log_det = -2 * inverse.diagonal().log().sum()
        return float((log_det + len(inverse) * math.log(2 * math.pi)) / 2)

    def score(self, Z: Tensor) -> Tensor:
        """Scores (n,) in float64 of embeddings (n, d)."""
        return self.distance(Z) + self.least

    def distance(self, Z: Tensor, own: Tensor | None = None) -> Tensor:
        """The score above the least one: ½|w|², what is added along the shift, and the gain of what
        resembles labeled defects; `own` says which of those each image is (`Examples.gain`)."""
        if self.whitening.mean is None:
            raise ValueError("this GaussianDensity has not been fitted; call fit(Z) first")
        w = self.whitening(Z.detach())
        distance: Tensor = w.square().sum(dim=1) / 2
        if self.shift is not None:
            u = self.whitening.shift(self.shift)
            along: Tensor = (w @ u) / u.square().sum().sqrt().clamp_min(1e-300)
            distance = distance + self.weight * along.clamp_min(0).square() / 2
        return distance * self.examples.gain(w, self.whitening, own)

    def seen_by(self, whitening: Whitening) -> "GaussianDensity":
        """What was learned, over another whitening: one that hasn't seen some images."""
        density = GaussianDensity(self.shift, float(self.weight)).to(self.weight.device)
        density.whitening, density.examples = whitening, self.examples
        return density


class ImageGaussian(nn.Module):
    """The image-level part: how far the image's embedding is from the normal ones."""

    def __init__(self, n_nuisance: int = N_NUISANCE, directions: float = DIRECTIONS) -> None:
        """n_nuisance: directions of light that are left out; directions: how many others there
        are, by which a direction that outliers agree on gains."""
        super().__init__()
        self.n_nuisance, self.directions = n_nuisance, directions
        self.density = GaussianDensity(n_nuisance=n_nuisance)
        self._by_fold: list[Whitening] = []  # of the last fit, until `forget`

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_by_fold": []}  # copies do without

    def config(self) -> dict[str, Any]:
        return {"n_nuisance": self.n_nuisance, "directions": self.directions}

    def learn(self, outliers: Features) -> Lesson:
        """Squares along the direction that the pool's outliers share count for more from now on."""
        shift, lesson = lesson_of(outliers.pooled, self.density.whitening, self.directions)
        taught = GaussianDensity(shift, lesson.weight).to(self.density.weight.device)
        taught.whitening, taught.examples = self.density.whitening, self.density.examples
        self.density = taught
        return lesson

    def fit(self, normal: NormalFeatures, fold: Tensor) -> PartScores:
        """Learn normal images, and score each as if its fold had not been seen."""
        self.density.fit(normal.pooled, normal.light_changes)
        self.forget()
        return self.crossed(normal, fold)

    def forget(self) -> None:
        """What only `crossed` needs; it makes it again."""
        self._by_fold = []

    def by_fold(self, normal: NormalFeatures, fold: Tensor) -> list[Whitening]:
        """A whitening without each fold of the normal images."""
        self._by_fold = self._by_fold or self._whitenings(normal, fold)
        return self._by_fold

    def _whitenings(self, normal: NormalFeatures, fold: Tensor) -> list[Whitening]:
        device = self.density.weight.device
        return [
            Whitening(self.n_nuisance)
            .to(device)
            .fit(normal.pooled[fold != k], normal.light_changes)
            for k in range(int(fold.max()) + 1)
        ]

    def crossed(
        self, normal: NormalFeatures, fold: Tensor, own: Tensor | None = None
    ) -> PartScores:
        """Scores of the normal images that were fitted to, each from a density that hasn't seen its
        fold; `own`: which labeled example each is (`Examples.gain`)."""
        distances = torch.empty(len(normal), dtype=torch.float64)
        for k, whitening in enumerate(self.by_fold(normal, fold)):
            of_others = self.density.seen_by(whitening)
            rows = fold == k
            of_fold = of_others.distance(normal.pooled[rows], None if own is None else own[rows])
            distances[rows] = of_fold.cpu()
        return PartScores(distances)

    def pool_embeddings(
        self, normal: NormalFeatures, fold: Tensor, pool: Tensor, pool_fold: Tensor
    ) -> PoolEmbeddings:
        """What a direction is learned from."""
        whitening, by_fold = self.density.whitening, self.by_fold(normal, fold)
        return PoolEmbeddings(normal.pooled, fold, pool, pool_fold, whitening, by_fold)

    def whitened(self, features: Features) -> Tensor:
        w: Tensor = self.density.whitening(features.pooled)
        return w

    def forward(self, features: Features) -> Tensor:
        """(n,): each image's distance."""
        return self.density.distance(features.pooled)


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
    """S(θ), the criterion by which restarts are compared: the larger, the better (Eq. 4)."""
    return float(scores.double().var(correction=0))
