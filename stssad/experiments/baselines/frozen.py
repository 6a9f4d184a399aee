"""Frozen: an ImageNet encoder with nothing trained, and a Gaussian on its pooled embeddings."""

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from ...encoders.efficientnet_lite import EfficientNetLite0
from ...encoders.encoding import embed_all
from ...scoring.gaussian import GaussianDensity


class Frozen:
    """What a user would pick who wants no training at all."""

    def __init__(self, encoder: nn.Module | None = None, device: str = "cpu") -> None:
        self.encoder, self.device = encoder, device

    def fit(self, train: Tensor, unlabeled: Tensor | None = None) -> "Frozen":
        self.encoder_ = (self.encoder or EfficientNetLite0()).to(self.device).eval()
        self.density_ = GaussianDensity().fit(embed_all(self.encoder_, train))
        return self

    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]:
        scores: npt.NDArray[np.float64] = self.density_.score(
            embed_all(self.encoder_, images)
        ).numpy()
        return scores
