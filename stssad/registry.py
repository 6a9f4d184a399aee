"""Names of what can be swapped, and where each lives: a new one is a file and a line here.

Nothing is imported before it is asked for, so that `stssad --help` need not wait for torch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any


class Registry(Mapping[str, Any]):
    """Public names to the objects themselves, imported when they are first used."""

    def __init__(self, kind: str, **homes: str) -> None:
        self.kind, self.homes = kind, homes

    def __getitem__(self, name: str) -> Any:
        if name not in self.homes:
            raise ValueError(f"unknown {self.kind} {name!r}; use {', '.join(self.homes)}")
        return getattr(import_module(f"stssad.{self.homes[name]}"), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.homes)

    def __len__(self) -> int:
        return len(self.homes)

    def __contains__(self, name: object) -> bool:
        return name in self.homes

    def holds(self, thing: object) -> bool:
        """Whether this very class or function is ours: one's own may have the same name."""
        name = getattr(thing, "__name__", None)
        return name in self.homes and self[name] is thing


AUGMENTATIONS = Registry(
    "augmentation",
    Patch="augment.patch",
    Scratch="augment.scratch",
    Stain="augment.stain",
    Blur="augment.blur",
    Warp="augment.warp",
    CutDiff="augment.cutdiff",
    Rotation="augment.rotation",
    CutOut="augment.cutout",  # not differentiable: for baselines
    CutPaste="augment.cutpaste",  # not differentiable: for baselines
)
ENCODERS = Registry(
    "encoder",
    EfficientNetLite0="encoders.efficientnet_lite",
    EfficientNetLite1="encoders.efficientnet_lite",
    EfficientNetLite2="encoders.efficientnet_lite",
    ResNet18="encoders.resnet",
    MLP="encoders.mlp",
)
VAL_LOSSES = Registry(
    "validation loss",
    mean_distance_loss="tuning.val_loss",
    mmd_loss="tuning.val_loss",
    shift_alignment="tuning.shift_alignment",
)
METHODS = Registry("method", pretrained="methods.pretrained", paper="methods.paper")

# Which augmentation types may be tuned.
TUNABLE = tuple(name for name in AUGMENTATIONS if name not in ("CutOut", "CutPaste"))
DEFAULT_TYPES = ("Patch", "Scratch", "Stain", "Blur", "Warp")


@dataclass(frozen=True)
class Defaults:
    """What a method takes where the user names nothing."""

    augmentations: tuple[str, ...]
    encoder: str


DEFAULTS = {
    "pretrained": Defaults(DEFAULT_TYPES, "EfficientNetLite0"),
    "paper": Defaults(("CutDiff",), "ResNet18"),
}
