"""What every method is given, and what it gives back."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..augment import Augmentation
from ..scoring.anomaly_map import MapScale
from ..scoring.contamination import Contamination
from ..scoring.evidence import Evidence
from ..scoring.lesson import Lesson
from ..scoring.part import Part
from ..settings import AnySettings, Reading
from ..tuning.restarts import Notify
from ..tuning.val_loss import ValLoss
from .anomaly_model import AnomalyModel

MIN_TRAIN, MIN_POOL = 4, 2


@dataclass(frozen=True)
class Choices:
    """What a fit is made of, with nothing left open."""

    augmentations: list[Augmentation]
    encoder: nn.Module
    settings: AnySettings
    val_loss: ValLoss
    parts: list[Part] | None  # None where the method has none to choose

    def with_reading(self, reading: Reading) -> "Choices":
        """As files were read."""
        settings = replace(self.settings, white_level=reading.white_level)
        if settings.image_size is None:
            settings = replace(settings, image_size=reading.image_size)
        return replace(self, settings=settings)


@dataclass(frozen=True)
class Problem:
    """Normal images (n, 3, m, m), an unlabeled pool of the same size or None, and the choices."""

    train: Tensor
    pool: Tensor | None
    choices: Choices
    seed: int = 0
    jobs: int = 1
    device: str = "cpu"
    engine: str = "auto"  # that runs a network whose weights stay
    progress: Notify | None = None
    checkpoints: Path | None = None  # a folder where restarts keep their state as they go
    warm_starts: Path | None = None  # a folder of warm starts that other fits may share

    @property
    def image_size(self) -> int:
        return int(self.train.shape[-1])


@dataclass(frozen=True)
class Transient:
    """What is known right after a fit, and isn't saved with the model."""

    Z_trn: Tensor = field(default_factory=lambda: torch.empty(0))  # of the images fitted to
    Z_pool: Tensor = field(default_factory=lambda: torch.empty(0))
    pool_maps: Tensor | None = None  # anomaly maps (n, h, w)
    untuned: nn.Module | None = None  # the scorer before it learned from the pool
    kept: Any = None  # what a refit needs (`methods.refit.Kept`)
    descriptors: Tensor | None = None  # (n, c) of pool images, by which their kinds are told apart


@dataclass(frozen=True)
class Fitted:
    """What a method returns."""

    model: AnomalyModel
    normal_scores: Tensor  # of normal images that the model wasn't fitted to
    pool_scores: Tensor | None
    train_index: Tensor  # which of the normal images were fitted to, and which held out
    held_out_index: Tensor
    candidates: list[Any]  # one for each restart
    chosen: int | None  # None: nothing was tuned
    augmentation: Augmentation | None  # the chosen one's
    warnings: list[str]
    evidence: Evidence | None = None
    lesson: Lesson | None = None  # what the pool's outliers have taught the score
    # From scores that have learned nothing from the pool, so that they can't bear themselves out.
    contamination: Contamination | None = None
    map_scale: MapScale | None = None
    normal_conditions: Tensor | None = None  # (n, 4), of the images that have `normal_scores`
    transient: Transient = field(default_factory=Transient)


class Method(Protocol):
    """A way to fit; the facade asks for one by name and doesn't care which it is."""

    name: str
    trains: bool  # whether it trains its encoder
    settings_type: type

    def choices(
        self,
        augmentations: list[Augmentation] | None,
        encoder: nn.Module | None,
        settings: Any,
        val_loss: ValLoss | None,
        parts: list[Part] | None,
    ) -> Choices:
        """What was left to us, filled in."""

    def fit(self, problem: Problem) -> Fitted: ...

    def empty_scorer(self, parts: list[Part] | None) -> nn.Module:
        """The scorer before its arrays are loaded."""

    def candidate(self, content: dict[str, Any]) -> Any:
        """One restart's result, from JSON."""

    def learned(self, candidate: Any, n_types: int) -> dict[str, Any]:
        """In words; with the augmentation's type where there were several to choose from."""


def check_counts(train: Tensor, pool: Tensor | None) -> None:
    """Enough images, of one size, that aren't all the same."""
    if len(train) < MIN_TRAIN:
        raise ValueError(
            f"train holds {len(train)} image(s), but at least {MIN_TRAIN} are needed to learn "
            "what normal images have in common (a hundred to learn it well); add normal images"
        )
    if bool((train == train[:1]).all()):
        raise ValueError(
            f"all {len(train)} images of train are the same, so there is nothing to say how normal "
            "images vary; add other normal images"
        )
    if pool is None:
        return
    if len(pool) < MIN_POOL:
        raise ValueError(
            f"unlabeled holds {len(pool)} image(s), but at least {MIN_POOL} are needed to "
            "compare their scores (some dozen to tune to); add unlabeled images"
        )
    if train.shape[-1] != pool.shape[-1]:
        raise ValueError(
            f"train and unlabeled must have one image size, got {train.shape[-1]} and "
            f"{pool.shape[-1]} pixels; resize one of them"
        )
