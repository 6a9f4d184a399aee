"""stssad finds anomalous pictures without any labels, and tunes itself to the kind of anomaly.

    from stssad import STSSAD
    model = STSSAD().fit(normal_pictures, unlabeled_pictures)
    scores = model.decision_function(new_pictures)      # larger = more anomalous

The public names are imported when they are first used, so that `stssad --help` need not wait for
torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .augment import (
        Augmentation,
        Blur,
        CutDiff,
        CutOut,
        CutPaste,
        Patch,
        Rotation,
        Scar,
        Stain,
        Warp,
    )
    from .candidate import Candidate
    from .encoders import MLP, EfficientNetLite0, ResNet18
    from .model import STSSAD
    from .settings import Settings

_HOMES = {
    "Augmentation": "augment",
    "Blur": "augment",
    "Candidate": "candidate",
    "CutDiff": "augment",
    "CutOut": "augment",
    "CutPaste": "augment",
    "EfficientNetLite0": "encoders",
    "MLP": "encoders",
    "Patch": "augment",
    "ResNet18": "encoders",
    "Rotation": "augment",
    "STSSAD": "model",
    "Scar": "augment",
    "Settings": "settings",
    "Stain": "augment",
    "Warp": "augment",
}

__all__ = [
    "MLP",
    "STSSAD",
    "Augmentation",
    "Blur",
    "Candidate",
    "CutDiff",
    "CutOut",
    "CutPaste",
    "EfficientNetLite0",
    "Patch",
    "ResNet18",
    "Rotation",
    "Scar",
    "Settings",
    "Stain",
    "Warp",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stssad' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
