"""The two scores: features to one number for each image. Each has one forward, which is also what
is exported: operations that ONNX has, in the precision that they have here.

The pretrained score's parts have different scales, so each becomes z = (log distance - mean) /
standard deviation, both over normal images that it hasn't seen (cross-fitted), and the sum is
brought to the same scale again.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..encoders.features import Features, NormalFeatures
from .folds import PartScores
from .gaussian import GaussianDensity, ImageGaussian
from .lesson import Lesson
from .memory_bank import MemoryBank, highest
from .pool_auc import Sides
from .pool_part import PoolPart, PoolProblem

SMALL_BANK = 5_000  # patches of the smaller images that are kept: there are a quarter as many
NEGLIGIBLE = 1e-6  # of the median distance: what is nearer is a copy


@dataclass(frozen=True)
class Scores:
    """`scores` (n,) in float64; those of each part alone (n,); the anomaly map (n, h, w)."""

    scores: Tensor
    parts: list[Tensor]
    maps: Tensor | None = None

    def first(self, n: int) -> "Scores":
        """Of the first n images."""
        maps = None if self.maps is None else self.maps[:n]
        return Scores(self.scores[:n], [part[:n] for part in self.parts], maps)


class PaperScore(nn.Module):
    """The paper's: the negative log-likelihood of the image's embedding."""

    def __init__(self, density: GaussianDensity | None = None) -> None:
        super().__init__()
        self.density = density or GaussianDensity()

    def config(self) -> dict[str, Any]:
        return {}

    @property
    def floor(self) -> float:
        """The least score there can be."""
        return self.density.least

    def forward(self, features: Features) -> Scores:
        scores = self.density.score(features.pooled)
        return Scores(scores, [scores])


class PretrainedScore(nn.Module):
    """The image's embedding under a Gaussian, and its patches' distance from one or two memory
    banks, in standard deviations above the usual normal image.

    bank, small_bank: None where the encoder has no feature maps, or images are encoded at one size.
    """

    floor = -math.inf  # scores are logarithms

    def __init__(
        self,
        gaussian: ImageGaussian | None = None,
        bank: MemoryBank | None = None,
        small_bank: MemoryBank | None = None,
    ) -> None:
        super().__init__()
        self.gaussian, self.bank, self.small_bank = gaussian or ImageGaussian(), bank, small_bank
        self.pool_part = PoolPart()
        n = 1 + len(self.banks)
        self.centers: Tensor
        self.spreads: Tensor
        self.least: Tensor
        self.total: Tensor
        self.register_buffer("centers", torch.zeros(n, dtype=torch.float64))
        self.register_buffer("spreads", torch.ones(n, dtype=torch.float64))
        self.register_buffer("least", torch.full((n,), 1e-12, dtype=torch.float64))
        self.register_buffer("total", torch.tensor([0.0, 1.0], dtype=torch.float64))

    @staticmethod
    def for_features(features: Features) -> "PretrainedScore":
        """The default's parts, as far as there is something for them to see."""
        small = features.small
        return PretrainedScore(
            bank=MemoryBank() if features.is_spatial else None,
            small_bank=MemoryBank(SMALL_BANK) if small is not None and small.is_spatial else None,
        )

    @staticmethod
    def from_config(config: dict[str, Any]) -> "PretrainedScore":
        """Unfitted, as `config` describes it."""
        bank, small = config["bank"], config["small_bank"]
        return PretrainedScore(
            ImageGaussian(**config["gaussian"]),
            None if bank is None else MemoryBank(**bank),
            None if small is None else MemoryBank(**small),
        )

    def config(self) -> dict[str, Any]:
        return {
            "gaussian": self.gaussian.config(),
            "bank": self.bank and self.bank.config(),
            "small_bank": self.small_bank and self.small_bank.config(),
        }

    @property
    def banks(self) -> list[MemoryBank]:
        return [bank for bank in (self.bank, self.small_bank) if bank is not None]

    def for_banks(self, features: Features) -> list[tuple[MemoryBank, Features]]:
        """Each bank with the features that it scores."""
        pairs = [] if self.bank is None else [(self.bank, features)]
        if self.small_bank is not None:
            pairs.append((self.small_bank, features.in_small()))
        return pairs

    def fit(self, normal: NormalFeatures, fold: Tensor, seed: int) -> list[PartScores]:
        """Fit all parts; each one's scores of normal images as if it hadn't seen their fold."""
        crossed = [self.gaussian.fit(normal, fold)]
        if self.bank is not None:
            crossed.append(self.bank.fit(normal, fold, seed))
        if self.small_bank is not None:
            crossed.append(self.small_bank.fit(normal.small, fold, seed))
        return crossed

    def learn(
        self, outliers: Features, normal: NormalFeatures, fold: Tensor, crossed: list[PartScores]
    ) -> tuple[list[PartScores], Lesson]:
        """Show the pool's outliers to the Gaussian; normal images' scores as `fit` gives them."""
        lesson = self.gaussian.learn(outliers)
        again = self.gaussian.crossed(normal, fold)
        self.gaussian.forget()
        return [again, *crossed[1:]], lesson

    def calibrate(self, crossed: list[PartScores]) -> Scores:
        """Bring the parts to one scale, by their scores of held-out normal images."""
        device = self.total.device
        parts = [part.scores.to(device) for part in crossed]
        self.least = torch.stack([least_distance(part) for part in parts])
        scales = [scale_of(z) for z in self._logs(parts)]
        self.centers, self.spreads = torch.stack(scales, dim=1)
        self.total = scale_of(self._sum(parts))
        maps = [part.maps for part in crossed if part.maps is not None]
        return Scores(self.combined(parts).cpu(), parts, maps[0] if maps else None)

    def _logs(self, parts: list[Tensor]) -> list[Tensor]:
        both = zip(parts, self.least, strict=True)
        return [part.double().maximum(least).log() for part, least in both]

    def _sum(self, parts: list[Tensor]) -> Tensor:
        zipped = zip(self._logs(parts), self.centers, self.spreads, strict=True)
        return torch.stack([(log - center) / spread for log, center, spread in zipped]).sum(0)

    def combined(self, parts: list[Tensor]) -> Tensor:
        """One score (n,) from those of the parts."""
        return (self._sum(parts) - self.total[0]) / self.total[1]

    def forward(self, features: Features) -> Scores:
        parts, maps = [self.gaussian(features)], []
        for bank, seen in self.for_banks(features):
            distances = bank(seen)
            maps.append(distances)
            parts.append(highest(distances, bank.n_highest))
        return Scores(self.whole(parts, features), parts, maps[0] if maps else None)

    def whole(self, parts: list[Tensor], features: Features) -> Tensor:
        """One score (n,) from those of the parts, and from what the pool has taught."""
        scores = self.combined(parts)
        if not self.pool_part.is_taught:
            return scores
        return self.pool_part(scores, self.gaussian.whitened(features))  # type: ignore[no-any-return]

    def pool_problem(
        self,
        normal: NormalFeatures,
        fold: Tensor,
        of_normal: Scores,
        pool: Features,
        own: Tensor,
        maps: Tensor | None,
    ) -> PoolProblem:
        """Right after a fit: what may be learned from a pool; `own` (m,) are the pool's folds,
        `maps` its anomaly maps."""
        by_fold = self.gaussian.by_fold(normal, fold)
        images = [
            self.gaussian.density.seen_by(whitening).distance(pool.pooled) for whitening in by_fold
        ]
        pairs = zip(self.for_banks(pool), [maps, None], strict=False)
        banks = [bank.left_out(seen, known) for (bank, seen), known in pairs]
        parts = [torch.stack(images, dim=1), *(x.to(self.total.device) for x in banks)]
        left_out = torch.stack(
            [self.combined([part[:, k] for part in parts]) for k in range(len(by_fold))], dim=1
        ).cpu()
        held_out = left_out[torch.arange(len(own)), own].numpy()
        embeddings = self.gaussian.pool_embeddings(normal, fold, pool.pooled, own)
        return PoolProblem(embeddings, Sides(of_normal.scores.numpy(), held_out), left_out.numpy())


def least_distance(distances: Tensor) -> Tensor:
    """A third of the smallest distance of a normal image from the others, copies left out.

    Nothing is more normal than that: the logarithm of a copy's distance, 0, would be no number.
    """
    distances = distances.double()
    apart = distances[distances > NEGLIGIBLE * distances.median()]
    return apart.min() / 3 if len(apart) else distances.new_tensor(1e-12)


def scale_of(values: Tensor) -> Tensor:
    """(2,): where the numbers of normal images lie, and how far they spread."""
    spread = values.std() if len(values) > 1 else torch.ones((), dtype=values.dtype)
    return torch.stack([values.mean(), spread.clamp_min(1e-6)])
