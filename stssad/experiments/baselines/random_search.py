"""RS4 and RD4: several random draws, the best chosen by score variance, as ST-SSAD chooses.

The paper compares four restarts of ST-SSAD with one random draw. This gives random choice as much
computation, and the same judge: what is left between the two is the tuning.
"""

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ...augment import Augmentation
from ...settings import Settings
from ...tuning.restarts import own_seed
from .random_augmentation import RandomAugmentation


class RandomSearch:
    """As many detectors of RS (or RD, dynamic) as ST-SSAD has restarts."""

    def __init__(
        self,
        augmentation: Augmentation,
        dynamic: bool,
        settings: Settings | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.augmentation, self.dynamic = augmentation, dynamic
        self.settings, self.seed, self.device = settings, seed, device

    def fit(self, train: Tensor, unlabeled: Tensor) -> "RandomSearch":
        self.draws_ = [
            RandomAugmentation(
                self.augmentation, self.dynamic, self.settings, own_seed(self.seed, k), self.device
            ).fit(train)
            for k in range(len(self.augmentation.initial_values()))
        ]
        return self.choose(unlabeled)

    def choose(self, unlabeled: Tensor) -> "RandomSearch":
        """The one whose scores on the pool vary most; training doesn't look at the pool."""
        variances = [draw.decision_function(unlabeled).var() for draw in self.draws_]
        self.chosen_ = self.draws_[int(np.argmax(variances))]
        self.learned_ = self.chosen_.learned_
        return self

    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]:
        return self.chosen_.decision_function(images)
