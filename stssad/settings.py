"""Numbers that the methods depend on: one frozen dataclass each, with only what that one knows.

This module imports nothing heavy: the command line makes its flags from it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, Literal, get_args

from .images.reading import Aspect, Reading

Mode = Literal["exact", "finite_difference", "first_order"]
EndState = Literal["best", "last"]


def setting(default: Any, help_text: str, may_be_zero: bool = False) -> Any:
    """A field with its explanation, which is also the help text of its flag."""
    return field(default=default, metadata={"help": help_text, "may_be_zero": may_be_zero})


# Beyond these nothing runs, or not for long.
MOST = {"image_size": 4096, "tuning_size": 4096, "threads": 256, "width": 1024}
LEAST_IMAGE_SIZE = 8
USUAL_SIZE = 256  # of the pretrained method's images, if the files are as large


def check_type(name: str, kind: Any, value: Any) -> None:
    """A whole number, a finite number, or a text, by the type of the field."""
    if kind in (int, int | None):
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        fits = whole or (value is None and kind is not int)
        wanted = "a whole number"
    elif kind is float:
        fits = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        wanted = "a finite number"
    else:
        fits, wanted = isinstance(value, str), "a word"
    if not fits:
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


def check(settings: "Settings | PretrainedSettings") -> None:
    """Texts must be known, numbers positive."""
    name_of_class = type(settings).__name__
    for f in fields(settings):
        value = getattr(settings, f.name)
        check_type(f"{name_of_class}.{f.name}", f.type, value)
        allowed = {"aspect": Aspect, "hypergradient": Mode, "end_state": EndState}.get(f.name)
        if allowed is not None and value not in get_args(allowed):
            names = ", ".join(get_args(allowed))
            raise ValueError(f"{name_of_class}.{f.name} is {value!r}; use {names}")
        if isinstance(value, str) or value is None:
            continue
        if value < 0 or (value == 0 and not f.metadata["may_be_zero"]):
            raise ValueError(f"{name_of_class}.{f.name} must be positive, got {value}")
        if value > (most := MOST.get(f.name, math.inf)):
            raise ValueError(f"{name_of_class}.{f.name} must be at most {most}, got {value}")
    if settings.image_size is not None and settings.image_size < LEAST_IMAGE_SIZE:
        raise ValueError(
            f"{name_of_class}.image_size must be at least {LEAST_IMAGE_SIZE}, got "
            f"{settings.image_size}: smaller images show nothing"
        )
    if settings.holdout_share >= 0.9:
        raise ValueError(
            f"{name_of_class}.holdout_share must leave something to train on, got "
            f"{settings.holdout_share}"
        )
    if isinstance(settings, Settings) and settings.theta_decay > 1:
        raise ValueError(
            f"{name_of_class}.theta_decay is a share of the detector updates, at most 1, got "
            f"{settings.theta_decay}"
        )


IMAGE_SIZE = "Image size in pixels; images read from files are resized to it."
PRETRAINED_IMAGE_SIZE = (
    "Image size in pixels; images read from files are resized to it. If not given: 256, or less "
    "where the files are smaller; with --method paper, the preset's."
)
TUNING_SIZE = (
    "Image size at which the augmentation is tuned and a second memory bank looks, where images "
    "are larger."
)
WHITE_LEVEL = (
    "Value that is white in grey images of more than 8 bits; found from the normal images if not "
    "given."
)
ASPECT = "Files that aren't square: stretch, crop or pad."
HOLDOUT_SHARE = "Share of the normal images kept out of the fit to set the threshold."
MAX_ITERATIONS = "Maximum number of updates of the augmentation."
A_STEP_SIZE = "Step size of Adam on the augmentation's parameters, on a cosine schedule."
VAL_TRAIN = "Training images in each computation of the validation loss."
VAL_AUGMENTED = "Augmented images in each computation of the validation loss."
VAL_POOL = "Pool images there; all of them if not given."
CHUNK_SIZE = "Images encoded at a time in the validation loss: memory, not the result."
SMOOTHING = "Iterations over which the losses are averaged to find the best state."
PATIENCE = "Iterations without a better average before a restart stops."
THREADS = "Threads of each restart; sums differ in the last bits between thread counts."


@dataclass(frozen=True)
class PretrainedSettings:
    """The pretrained method's: the encoder stays as it is; only the augmentation is tuned.

    Variants by `dataclasses.replace`. Nothing is held out: normal scores are cross-fitted.
    """

    image_size: int | None = setting(None, PRETRAINED_IMAGE_SIZE)
    tuning_size: int = setting(128, TUNING_SIZE)
    aspect: Aspect = setting("stretch", ASPECT)
    white_level: int | None = setting(None, WHITE_LEVEL)
    holdout_share: float = setting(0.0, HOLDOUT_SHARE, may_be_zero=True)
    max_iterations: int = setting(14, MAX_ITERATIONS)
    a_step_size: float = setting(0.25, A_STEP_SIZE)
    val_train_samples: int = setting(512, VAL_TRAIN)
    val_augmented_samples: int = setting(16, VAL_AUGMENTED)
    val_pool_samples: int | None = setting(None, VAL_POOL)
    chunk_size: int = setting(64, CHUNK_SIZE)
    smoothing: int = setting(4, SMOOTHING)
    patience: int = setting(14, PATIENCE)
    threads: int = setting(1, THREADS)

    def __post_init__(self) -> None:
        check(self)

    @property
    def reading(self) -> Reading:
        """How image files are read."""
        size = self.image_size or USUAL_SIZE
        return Reading(size, self.aspect, self.white_level, may_shrink=self.image_size is None)


@dataclass(frozen=True)
class Settings:
    """The paper's method's; the defaults are the paper's for MVTec AD (Appendix C)."""

    image_size: int = setting(256, IMAGE_SIZE)
    aspect: Aspect = setting("stretch", ASPECT)
    white_level: int | None = setting(None, WHITE_LEVEL)
    width: int = setting(64, "Width of the ResNet-18 that is built when no encoder is given.")

    holdout_share: float = setting(0.0, HOLDOUT_SHARE, may_be_zero=True)
    batch_size: int = setting(32, "Normal images in a mini-batch of the training loss.")
    augmented_ratio: float = setting(1.0, "Augmented images for each normal one there (γ).")
    theta_step_size: float = setting(0.03, "Step size of SGD (α).")
    theta_decay: float = setting(
        1.0, "Share of the detector updates, the last ones, over which α falls to 0 (cosine)."
    )
    momentum: float = setting(0.9, "SGD momentum.", may_be_zero=True)
    weight_decay: float = setting(3e-5, "SGD weight decay.", may_be_zero=True)

    warm_start_epochs: int = setting(
        20, "Epochs of training at the initial augmentation, before tuning.", may_be_zero=True
    )
    theta_updates: int = setting(1, "Detector updates for each update of the augmentation.")
    max_iterations: int = setting(500, MAX_ITERATIONS)
    a_step_size: float = setting(0.05, A_STEP_SIZE)
    a_noise: float = setting(
        0.0,
        "Standard deviation of the noise around the augmentation's parameters while tuning.",
        may_be_zero=True,
    )
    end_state: EndState = setting("best", "State that tuning ends with: best or last.")
    final_updates: int = setting(
        0, "Detector updates at the learned augmentation, after tuning.", may_be_zero=True
    )
    hypergradient: Mode = setting("exact", "exact, finite_difference or first_order.")

    val_train_samples: int = setting(256, VAL_TRAIN)
    val_augmented_samples: int = setting(256, VAL_AUGMENTED)
    val_pool_samples: int | None = setting(None, VAL_POOL)
    chunk_size: int = setting(64, CHUNK_SIZE)

    smoothing: int = setting(10, SMOOTHING)
    patience: int = setting(50, PATIENCE)
    threads: int = setting(1, THREADS)

    def __post_init__(self) -> None:
        check(self)

    @property
    def reading(self) -> Reading:
        """How image files are read."""
        return Reading(self.image_size, self.aspect, self.white_level)

    @classmethod
    def paper_mvtec(cls, **changes: Any) -> "Settings":
        """The paper's for MVTec AD: 256 px, for which one wants a GPU."""
        return replace(cls(), **changes)

    @classmethod
    def paper_svhn(cls, **changes: Any) -> "Settings":
        """The paper's for SVHN: 32 px, large batches, five θ updates for each of `a`."""
        svhn = cls(
            image_size=32, batch_size=256, warm_start_epochs=40, theta_updates=5, max_iterations=100
        )
        return replace(svhn, **changes)

    @classmethod
    def quick(cls, **changes: Any) -> "Settings":
        """Minutes on two CPU cores: 64 px, a quarter of the width, fewer and larger steps.

        In L_val, few augmented and pool images against many training ones: it is what keeps a
        small patch from shrinking to nothing (docs/paper-map.md, "The pull to the identity").
        """
        quick = cls(
            image_size=64,
            width=16,
            holdout_share=0.2,
            warm_start_epochs=40,
            max_iterations=60,
            a_step_size=0.25,
            val_train_samples=192,
            val_augmented_samples=16,
            val_pool_samples=32,
            chunk_size=256,
            smoothing=20,
            patience=30,
        )
        return replace(quick, **changes)


AnySettings = Settings | PretrainedSettings
SETTINGS: Mapping[str, type[Settings] | type[PretrainedSettings]] = {
    "pretrained": PretrainedSettings,
    "paper": Settings,
}
PRESETS = {  # of the paper's method, for users; the benchmark has its own
    "quick": Settings.quick,
    "paper_mvtec": Settings.paper_mvtec,
    "paper_svhn": Settings.paper_svhn,
}
