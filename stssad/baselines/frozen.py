"""Frozen: an ImageNet encoder with nothing trained, and a Gaussian on its pooled embeddings."""

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from ..detector import Detector
from ..encoders import EfficientNetLite0
from ..scoring import GaussianDensity


class Frozen:
    """What a user would pick who wants no training at all."""

    def __init__(self, encoder: nn.Module | None = None, device: str = "cpu") -> None:
        self.encoder, self.device = encoder, device

    def fit(self, train: Tensor, unlabeled: Tensor | None = None) -> "Frozen":
        encoder = self.encoder or EfficientNetLite0()
        detector = Detector(encoder, train.shape[-1], self.device)
        self.frozen_ = detector.frozen(*detector.initial_state(seed=0))
        self.density_ = GaussianDensity().fit(self.frozen_.embed_all(train))
        return self

    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]:
        scores: npt.NDArray[np.float64] = self.density_.score(
            self.frozen_.embed_all(images)
        ).numpy()
        return scores
