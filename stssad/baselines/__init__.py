"""What ST-SSAD is compared with: `fit(train, unlabeled)`, `decision_function(images)`.

None of these looks at the unlabeled pool; it is an argument so that all methods are called alike.
"""

from .autoencoder import AutoEncoder
from .deep_svdd import DeepSVDD
from .frozen import Frozen
from .patchcore import PatchCore
from .random_augmentation import RandomAugmentation

__all__ = ["AutoEncoder", "DeepSVDD", "Frozen", "PatchCore", "RandomAugmentation"]
