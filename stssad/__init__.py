"""stssad finds anomalous images without any labels, and learns from the anomalies in a pool.

    from stssad import STSSAD
    model = STSSAD().fit(normal_images, unlabeled_images)
    scores = model.decision_function(new_images)      # larger = more anomalous

The public names are imported when they are first used, so that `stssad --help` need not wait for
torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .registry import AUGMENTATIONS, ENCODERS, VAL_LOSSES
from .version import __version__

if TYPE_CHECKING:
    from .augment import Augmentation as Augmentation
    from .augment.blur import Blur as Blur
    from .augment.cutdiff import CutDiff as CutDiff
    from .augment.cutdiff import cutdiff as cutdiff
    from .augment.cutout import CutOut as CutOut
    from .augment.cutpaste import CutPaste as CutPaste
    from .augment.patch import Patch as Patch
    from .augment.rotation import Rotation as Rotation
    from .augment.rotation import rotate as rotate
    from .augment.scratch import Scratch as Scratch
    from .augment.stain import Stain as Stain
    from .augment.warp import Warp as Warp
    from .deploy.drift import DriftMonitor as DriftMonitor
    from .encoders.efficientnet_lite import EfficientNetLite0 as EfficientNetLite0
    from .encoders.efficientnet_lite import EfficientNetLite1 as EfficientNetLite1
    from .encoders.efficientnet_lite import EfficientNetLite2 as EfficientNetLite2
    from .encoders.encoder import Encoder as Encoder
    from .encoders.mlp import MLP as MLP
    from .encoders.resnet import ResNet18 as ResNet18
    from .model import STSSAD as STSSAD
    from .runs.run import Run as Run
    from .scoring.gaussian import GaussianDensity as GaussianDensity
    from .settings import PretrainedSettings as PretrainedSettings
    from .settings import Settings as Settings
    from .tuning.hypergradient import hypergradient as hypergradient
    from .tuning.shift_alignment import shift_alignment as shift_alignment
    from .tuning.val_loss import mean_distance_loss as mean_distance_loss
    from .tuning.val_loss import mmd_loss as mmd_loss
    from .tuning.val_loss import total_distance_normalize as total_distance_normalize

_HOMES = {
    **AUGMENTATIONS.homes,
    **ENCODERS.homes,
    **VAL_LOSSES.homes,
    "Augmentation": "augment",
    "DriftMonitor": "deploy.drift",
    "Encoder": "encoders.encoder",
    "GaussianDensity": "scoring.gaussian",
    "PretrainedSettings": "settings",
    "Run": "runs.run",
    "STSSAD": "model",
    "Settings": "settings",
    "cutdiff": "augment.cutdiff",
    "hypergradient": "tuning.hypergradient",
    "rotate": "augment.rotation",
    "total_distance_normalize": "tuning.val_loss",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stssad' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
