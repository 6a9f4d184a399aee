"""What every method is given, and what it gives back."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from ..augment import Augmentation
from ..encoders.features import Features, NormalFeatures
from ..images.reading import Reading
from ..scoring.anomaly_map import MapScale
from ..scoring.contamination import Contamination
from ..scoring.evidence import Evidence
from ..scoring.folds import PartScores
from ..scoring.lesson import Lesson
from ..scoring.pool_part import Trial
from ..settings import AnySettings
from ..tuning.progress import Notify
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

    def with_reading(self, reading: Reading) -> "Choices":
        """As files were read."""
        settings = replace(self.settings, white_level=reading.white_level)
        if settings.image_size is None:
            settings = replace(settings, image_size=reading.image_size)
        return replace(self, settings=settings)


@dataclass(frozen=True)
class FitProblem:
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
class PoolResult:
    """What the score says of the pool, and what it has learned from it."""

    scores: Tensor  # (m,)
    lesson: Lesson | None  # of its outliers; None: the method doesn't learn from them
    # From scores that have learned nothing from the pool, so that they can't bear themselves out.
    contamination: Contamination
    trial: Trial | None = None  # of a direction to learn from it; None: the method learns none


@dataclass(frozen=True)
class Explanation:
    """What kind of anomaly the pool holds: augmentation types tuned to it. It scores nothing in the
    pretrained method; in the paper's it is what the detector was trained with."""

    candidates: list[Any]  # one for each restart
    chosen: int
    augmentation: Augmentation  # the chosen one's
    evidence: Evidence | None = None  # None: the method has no test of it

    @property
    def chosen_candidate(self) -> Any:
        return self.candidates[self.chosen]


@dataclass(frozen=True)
class Fitted:
    """What a method returns, and a model keeps."""

    model: AnomalyModel
    normal_scores: Tensor  # of normal images that the model wasn't fitted to
    train_index: Tensor  # which of the normal images were fitted to, and which held out
    held_out_index: Tensor
    normal_conditions: Tensor  # (n, 4), of the images that have `normal_scores`
    warnings: list[str]
    map_scale: MapScale | None = None  # None: the encoder has no feature maps
    pool: PoolResult | None = None  # None: no pool was given
    explanation: Explanation | None = None  # None: not yet, or there was no pool


@dataclass(frozen=True)
class Workings:
    """What a fit has computed on its way: the report, a refit and the explanation need it, and a
    saved model does without."""

    normal: NormalFeatures  # of the images that were fitted to
    pool: Features | None
    pool_maps: Tensor | None = None  # anomaly maps (m, h, w)
    pool_fold: Tensor | None = None  # (m,): images of one fold teach the others, not themselves
    crossed: list[PartScores] = field(default_factory=list)  # of each part, for normal images
    untaught: nn.Module | None = None  # the score before it learned from the pool
    held_out: Features | None = None  # normal images that set the threshold, if any


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
    ) -> Choices:
        """What was left to us, filled in."""

    def fit(self, problem: FitProblem) -> tuple[Fitted, Workings]:
        """Everything that scores."""

    def explain(
        self, problem: FitProblem, fitted: Fitted, workings: Workings | None
    ) -> Explanation | None:
        """What kind of anomaly the pool holds; None: there is no pool. Without the workings of the
        fit they are computed again."""

    def empty_score(self, config: dict[str, Any]) -> nn.Module:
        """The score that `config` describes, before its arrays are loaded."""

    def candidate(self, content: dict[str, Any]) -> Any:
        """One restart's result, from JSON."""

    def learned(self, candidate: Any, n_types: int) -> dict[str, Any]:
        """In words; with the augmentation's type where there were several to choose from."""


def check_counts(train: Tensor, pool: Tensor | None, n_held_out: int) -> None:
    """Enough images, of one size, that aren't all the same; `train` is without those held out."""
    if len(train) < MIN_TRAIN:
        n_train = len(train) + n_held_out
        held_out = f" that aren't held out ({n_held_out} are)" if n_train >= MIN_TRAIN else ""
        raise ValueError(
            f"train holds {n_train} image(s), but at least {MIN_TRAIN}{held_out} are needed to "
            "learn what normal images have in common (a hundred to learn it well); add normal "
            "images"
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
