"""What a fitted model scores pictures with: the paper's density, or ours, calibrated.

Ours adds what the whole picture's embedding says and what its strangest places say. The two have
different scales, so each becomes z = (log score - mean) / standard deviation, both over normal
pictures that it hasn't seen (cross-fitted), and the sum is brought to the same scale once more.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from .detector import FrozenEncoder, Tensors
from .local import NormalPlaces, PlaceMemory, WhitenedMemory, cross_fitted_places, joined
from .scoring import GaussianDensity, cross_fitted_distances, random_folds
from .storage import with_prefix, without_prefix


@dataclass(frozen=True)
class Scored:
    """Scores (n,) in float64 and, where the encoder has maps, what the places alone say:

    a score (n,), and each place's distance to the nearest normal one (n, h, w).
    """

    scores: Tensor
    place: Tensor | None = None
    places: Tensor | None = None


class Scorer(Protocol):
    @property
    def density(self) -> GaussianDensity: ...

    @property
    def floor(self) -> float:
        """The least score there can be; -inf for scores that are logarithms."""

    def __call__(self, encoder: FrozenEncoder, images: Tensor) -> Scored:
        """Scores of a few pictures, in this thread."""

    def tensors(self) -> Tensors: ...

    def facts(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class DensityScorer:
    """The paper's: the negative log-likelihood of the picture's embedding."""

    density: GaussianDensity

    @property
    def floor(self) -> float:
        return self.density.least

    def __call__(self, encoder: FrozenEncoder, images: Tensor) -> Scored:
        return Scored(self.density.score(encoder.embed_chunk(images)))

    def tensors(self) -> Tensors:
        return density_tensors(self.density)

    def facts(self) -> dict[str, Any]:
        return {"stretch": self.density.stretch}


@dataclass(frozen=True)
class Scale:
    """Where the numbers of normal pictures lie, and how far they spread."""

    center: float
    spread: float

    @staticmethod
    def of(values: Tensor) -> "Scale":
        spread = float(values.std()) if len(values) > 1 else 1.0
        return Scale(float(values.mean()), max(spread, 1e-6))

    def __call__(self, values: Tensor) -> Tensor:
        return (values - self.center) / self.spread


def logs(scores: Tensor) -> Tensor:
    return scores.double().clamp_min(1e-12).log()


@dataclass(frozen=True)
class HeatRange:
    """Distances that heatmaps show as cold and as hot, the same for every picture."""

    cold: float
    hot: float

    def __call__(self, places: Tensor) -> Tensor:
        """Distances to [0, 1]."""
        return ((places - self.cold) / (self.hot - self.cold)).clamp(0, 1)

    @staticmethod
    def of(normal: Tensor, pool: Tensor) -> "HeatRange":
        """From the usual normal place to the pool's strangest ones, or beyond all normal ones."""
        cold = float(normal.median())
        beyond = cold + 1.5 * (high_quantile(normal) - cold)
        return HeatRange(cold, max(high_quantile(pool), beyond, cold + 1e-6))


def high_quantile(values: Tensor) -> float:
    """So high that one in two hundred exceeds it."""
    flat = values.flatten()
    return float(flat.kthvalue(max(1, round(0.995 * len(flat)))).values)


@dataclass(frozen=True)
class CalibratedScorer:
    """Ours: whole picture and places, in standard deviations above the usual normal picture."""

    density: GaussianDensity
    whole: Scale
    memory: WhitenedMemory | None = None  # None: the encoder has no maps
    place: Scale | None = None
    total: Scale = Scale(0.0, 1.0)

    @property
    def floor(self) -> float:
        return -math.inf

    def __call__(self, encoder: FrozenEncoder, images: Tensor) -> Scored:
        if self.memory is None:
            return Scored(self.combined(self.density.distance(encoder.embed_chunk(images)), None))
        maps = encoder.maps_chunk(images)
        place, places = self.memory(joined(maps))
        whole = self.density.distance(encoder.pooled(maps))
        return Scored(self.combined(whole, place), place, places)

    def combined(self, whole: Tensor, place: Tensor | None) -> Tensor:
        """From distances (n,) of whole pictures, and of their strangest places."""
        z = self.whole(logs(whole))
        if place is not None and self.place is not None:
            z = z + self.place(logs(place))
        return self.total(z)

    def tensors(self) -> Tensors:
        memory = {}
        if self.memory is not None:
            memory = {"bank": self.memory.memory.bank, "transform": self.memory.transform}
        return {**density_tensors(self.density), **with_prefix("memory", memory)}

    def facts(self) -> dict[str, Any]:
        scales = {"whole": self.whole, "place": self.place, "total": self.total}
        return {
            "stretch": self.density.stretch,
            **{name: asdict(s) for name, s in scales.items() if s is not None},
        }


@dataclass(frozen=True)
class Calibrated:
    """The scorer, and what it found in normal pictures that it hadn't seen."""

    scorer: CalibratedScorer
    normal_scores: Tensor
    normal_places: Tensor | None


def calibrate(
    density: GaussianDensity, encoder: FrozenEncoder, train: Tensor, Z_trn: Tensor, seed: int
) -> Calibrated:
    """Both scores on the same scale, by normal pictures each of which was left out in turn."""
    fold = random_folds(len(train), seed)
    wholes = cross_fitted_distances(density, Z_trn, fold)
    whole = Scale.of(logs(wholes))
    if not encoder.has_maps:
        scorer = CalibratedScorer(density, whole)
        return Calibrated(scorer, scorer.combined(wholes, None), None)
    generator = torch.Generator().manual_seed(seed)
    normal = NormalPlaces.of(encoder, train, fold, generator)
    scores, places = cross_fitted_places(normal, encoder, train, fold)
    place = Scale.of(logs(scores))
    total = Scale.of(whole(logs(wholes)) + place(logs(scores)))
    scorer = CalibratedScorer(density, whole, normal.memory(), place, total)
    return Calibrated(scorer, scorer.combined(wholes, scores), places)


def density_tensors(density: GaussianDensity) -> Tensors:
    assert density.mean is not None and density.cholesky is not None
    shift = {} if density.shift is None else {"shift": density.shift}
    return with_prefix("density", {"mean": density.mean, "cholesky": density.cholesky, **shift})


def rebuilt_scorer(facts: dict[str, Any], tensors: Tensors) -> Scorer:
    """The scorer again, from what `tensors` and `facts` gave."""
    parts = without_prefix("density", tensors)
    density = GaussianDensity(
        parts["mean"], parts["cholesky"], parts.get("shift"), facts["stretch"]
    )
    if "whole" not in facts:
        return DensityScorer(density)
    stored = without_prefix("memory", tensors)
    return CalibratedScorer(
        density,
        Scale(**facts["whole"]),
        WhitenedMemory(PlaceMemory(stored["bank"]), stored["transform"]) if stored else None,
        Scale(**facts["place"]) if "place" in facts else None,
        Scale(**facts["total"]),
    )
