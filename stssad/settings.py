"""All that can be set about one start of the tuner, with the paper's choices by name."""

from dataclasses import dataclass, fields, replace
from typing import Any

from .hypergradient import Mode


@dataclass(frozen=True)
class Settings:
    """The defaults are the paper's for MVTec AD (Appendix C); variants by `dataclasses.replace`."""

    image_size: int = 256  # pixels; pictures read from files are resized to it
    width: int = 64  # of the ResNet-18 that is built when no encoder is passed

    batch_size: int = 32  # normal pictures in a mini-batch of L_trn
    augmented_ratio: float = 1.0  # γ = |D_aug| / |D_trn|
    theta_step_size: float = 0.03  # α, at the start of its cosine schedule
    momentum: float = 0.9
    weight_decay: float = 3e-5

    warm_start_epochs: int = 20  # of training at the initial `a`, before tuning begins
    theta_updates: int = 1  # for each update of `a`
    max_iterations: int = 500  # updates of `a`
    a_step_size: float = 0.05  # β, of Adam on the unconstrained `a`; a cosine schedule too
    hypergradient: Mode = "exact"

    val_train_samples: int = 256  # training pictures in each computation of L_val
    val_augmented_samples: int = 256
    val_pool_samples: int | None = None  # None: the whole pool
    chunk_size: int = 64  # pictures embedded at a time in L_val; memory, not the result

    smoothing: int = 10  # iterations over which L_trn + L_val is averaged to judge a state
    patience: int = 50  # iterations without a better average before a start stops
    threads: int = 1  # of each start; sums differ in the last bits between thread counts

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str) or value is None:
                continue
            low = 0 if field.name in ("momentum", "weight_decay", "warm_start_epochs") else None
            if value < 0 or (value == 0 and low is None):
                raise ValueError(f"Settings.{field.name} must be positive, got {value}")

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
            warm_start_epochs=40,
            max_iterations=60,
            a_step_size=0.25,
            val_train_samples=192,
            val_augmented_samples=16,
            val_pool_samples=32,
            smoothing=20,
            patience=30,
        )
        return replace(quick, **changes)
