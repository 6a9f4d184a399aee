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
    from .augment import Augmentation, CutDiff, CutOut, CutPaste, Rotation
    from .candidate import Candidate
    from .encoders import MLP, ResNet18
    from .model import STSSAD
    from .settings import Settings

_HOMES = {
    "Augmentation": "augment",
    "Candidate": "candidate",
    "CutDiff": "augment",
    "CutOut": "augment",
    "CutPaste": "augment",
    "MLP": "encoders",
    "ResNet18": "encoders",
    "Rotation": "augment",
    "STSSAD": "model",
    "Settings": "settings",
}

__all__ = [
    "MLP",
    "STSSAD",
    "Augmentation",
    "Candidate",
    "CutDiff",
    "CutOut",
    "CutPaste",
    "ResNet18",
    "Rotation",
    "Settings",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stssad' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
