"""All that can be set about one start of the tuner, with the paper's choices by name.

Imports nothing heavy: the command line makes its flags from it.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

Aspect = Literal["stretch", "crop", "pad"]
Mode = Literal["exact", "finite_difference", "first_order"]

# What only an encoder that trains can feel.
OF_TRAINING = (
    "width", "batch_size", "augmented_ratio", "theta_step_size", "momentum", "weight_decay",
    "warm_start_epochs", "theta_updates", "hypergradient",
)  # fmt: skip
MAY_BE_ZERO = ("holdout_share", "momentum", "weight_decay", "warm_start_epochs", "theta_updates")


@dataclass(frozen=True)
class Reading:
    """How files become pictures: their size, and what to do where they aren't square."""

    image_size: int
    aspect: Aspect = "stretch"


def setting(default: Any, words: str) -> Any:
    """A field with its explanation, which is also the help text of its flag."""
    return field(default=default, metadata={"words": words})


@dataclass(frozen=True)
class Settings:
    """The defaults are the paper's for MVTec AD (Appendix C); variants by `dataclasses.replace`."""

    image_size: int = setting(256, "pixels; pictures read from files are resized to it")
    aspect: Aspect = setting("stretch", "of files that aren't square: stretch, crop or pad")
    width: int = setting(64, "of the ResNet-18 that is built when no encoder is given")

    holdout_share: float = setting(
        0.0, "of the normal pictures, kept from training to set the threshold"
    )
    batch_size: int = setting(32, "normal pictures in a mini-batch of L_trn")
    augmented_ratio: float = setting(1.0, "augmented for each normal picture there (γ)")
    theta_step_size: float = setting(0.03, "of SGD on the detector (α), on a cosine schedule")
    momentum: float = setting(0.9, "of SGD on the detector")
    weight_decay: float = setting(3e-5, "of SGD on the detector")

    warm_start_epochs: int = setting(20, "of training at the initial a, before tuning begins")
    theta_updates: int = setting(1, "of the detector for each update of a; 0: it stays as it is")
    max_iterations: int = setting(500, "updates of a at most")
    a_step_size: float = setting(0.05, "of Adam on a (β), on a cosine schedule")
    hypergradient: Mode = setting("exact", "exact, finite_difference or first_order")

    val_train_samples: int = setting(256, "training pictures in each computation of L_val")
    val_augmented_samples: int = setting(256, "augmented pictures in each computation of L_val")
    val_pool_samples: int | None = setting(None, "pool pictures there; all of them if not given")
    chunk_size: int = setting(64, "pictures embedded at a time in L_val; memory, not the result")

    smoothing: int = setting(10, "iterations over which L_trn + L_val is averaged")
    patience: int = setting(50, "iterations without a better average before a start stops")
    threads: int = setting(1, "of each start; sums differ in the last bits between thread counts")

    def __post_init__(self) -> None:
        for name, allowed in (("aspect", Aspect), ("hypergradient", Mode)):
            if getattr(self, name) not in get_args(allowed):
                words = ", ".join(get_args(allowed))
                raise ValueError(f"Settings.{name} is {getattr(self, name)!r}; use {words}")
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, str) or value is None:
                continue
            if value < 0 or (value == 0 and f.name not in MAY_BE_ZERO):
                raise ValueError(f"Settings.{f.name} must be positive, got {value}")
        if self.holdout_share >= 0.9:
            raise ValueError(
                f"Settings.holdout_share must leave something to train on, got {self.holdout_share}"
            )

    @property
    def is_frozen(self) -> bool:
        """Whether the encoder stays as it is, so that only the augmentation is tuned."""
        return self.theta_updates == 0 and self.warm_start_epochs == 0

    @property
    def reading(self) -> Reading:
        """How picture files are read."""
        return Reading(self.image_size, self.aspect)

    @classmethod
    def imagenet(cls, **changes: Any) -> "Settings":
        """The default: an encoder that knows ImageNet stays as it is; only `a` is tuned.

        Nothing is held out: the normal pictures' scores are cross-fitted.
        """
        frozen = cls(
            image_size=128,
            warm_start_epochs=0,
            theta_updates=0,
            max_iterations=14,
            a_step_size=0.25,
            val_train_samples=512,
            val_augmented_samples=16,
            smoothing=4,
            patience=14,
        )
        return replace(frozen, **changes)

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

        In L_val, few augmented and pool pictures against many training ones: it is what keeps a
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

    @classmethod
    def cpu(cls, **changes: Any) -> "Settings":
        """The benchmark's where there is no GPU: 32 px, a quarter of the width, 40 iterations.

        Otherwise `quick`, with steps so much larger that `a` can go as far; nothing is held out.
        """
        cpu = cls.quick(image_size=32, holdout_share=0.0, max_iterations=40, a_step_size=0.375)
        return replace(cpu, **changes)
