"""Scorers: features to a score for each image, from one part or from several on one scale.

Parts have different scales, so each becomes z = (log score - mean) / standard deviation, both over
normal images that it hasn't seen (cross-fitted), and the sum is brought to the same scale again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..features import Features, NormalFeatures
from .gaussian import GaussianDensity
from .lesson import Lesson
from .part import Part, PartScores


@dataclass(frozen=True)
class Scores:
    """`scores` (n,) in float64; what each part alone says (n,); the anomaly map (n, h, w)."""

    scores: Tensor
    parts: list[Tensor]
    maps: Tensor | None = None

    def first(self, n: int) -> "Scores":
        """Of the first n images."""
        maps = None if self.maps is None else self.maps[:n]
        return Scores(self.scores[:n], [part[:n] for part in self.parts], maps)


class Likelihood(nn.Module):
    """The paper's score: the negative log-likelihood of the image's embedding."""

    def __init__(self, density: GaussianDensity) -> None:
        super().__init__()
        self.density = density

    @property
    def floor(self) -> float:
        """The least score there can be."""
        return self.density.least

    def forward(self, features: Features) -> Scores:
        scores = self.density.score(features.pooled)
        return Scores(scores, [scores])


class CalibratedSum(nn.Module):
    """Several parts, in standard deviations above the usual normal image."""

    floor = -math.inf  # scores are logarithms

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)  # type: ignore[arg-type]
        self.centers: Tensor
        self.spreads: Tensor
        self.total: Tensor
        self.register_buffer("centers", torch.zeros(len(parts), dtype=torch.float64))
        self.register_buffer("spreads", torch.ones(len(parts), dtype=torch.float64))
        self.register_buffer("total", torch.tensor([0.0, 1.0], dtype=torch.float64))

    def fit(self, normal: NormalFeatures, fold: Tensor, seed: int) -> list[PartScores]:
        """All parts; what each says of normal images as if it hadn't seen their fold."""
        return [part.fit(normal, fold, seed) for part in self.parts]  # type: ignore[operator]

    def learn(
        self, outliers: Features, normal: NormalFeatures, fold: Tensor, found: list[PartScores]
    ) -> tuple[list[PartScores], Lesson | None]:
        """Show the pool's outliers to the parts that learn from them; normal scores as `fit`'s."""
        lesson, taught = None, []
        for part, before in zip(self.parts, found, strict=True):
            if hasattr(part, "learn"):
                lesson = part.learn(outliers)  # type: ignore[operator]
                before = part.crossed(normal, fold)  # type: ignore[operator]
                part.forget()  # type: ignore[operator]
            taught.append(before)
        return taught, lesson

    def calibrate(self, found: list[PartScores]) -> Scores:
        """Bring the parts to one scale, by what they say of normal images that they didn't see."""
        device = self.total.device
        scales = [scale_of(logs(part.scores)) for part in found]
        self.centers, self.spreads = torch.stack(scales, dim=1).to(device)
        parts = [part.scores.to(device) for part in found]
        self.total = scale_of(self._sum(parts)).to(device)
        maps = [part.maps for part in found if part.maps is not None]
        return Scores(self.combined(parts).cpu(), parts, maps[0] if maps else None)

    def _sum(self, parts: list[Tensor]) -> Tensor:
        zipped = zip(parts, self.centers, self.spreads, strict=True)
        return torch.stack([(logs(p) - center) / spread for p, center, spread in zipped]).sum(0)

    def combined(self, parts: list[Tensor]) -> Tensor:
        """One score (n,) from those of the parts."""
        return (self._sum(parts) - self.total[0]) / self.total[1]

    def forward(self, features: Features) -> Scores:
        found = [part(features) for part in self.parts]
        maps = [part.maps for part in found if part.maps is not None]
        parts = [part.scores for part in found]
        return Scores(self.combined(parts), parts, maps[0] if maps else None)


def logs(scores: Tensor) -> Tensor:
    return scores.double().clamp_min(1e-12).log()


def scale_of(values: Tensor) -> Tensor:
    """(2,): where the numbers of normal images lie, and how far they spread."""
    spread = values.std() if len(values) > 1 else torch.ones((), dtype=values.dtype)
    return torch.stack([values.mean(), spread.clamp_min(1e-6)])
