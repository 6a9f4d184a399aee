"""Anomaly maps in the image's size, on one scale for all images of a model."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ..images.filters import gaussian_blur

SMOOTHING = 1 / 64  # of the image's side: standard deviation


def upsampled(maps: Tensor, size: int) -> Tensor:
    """Maps (n, h, w) in the size of the image, smooth."""
    grown = F.interpolate(maps[:, None], size=(size, size), mode="bilinear", align_corners=False)
    return gaussian_blur(grown, SMOOTHING * size)[:, 0]


@dataclass(frozen=True)
class MapScale:
    """Distances that heatmaps show as 0 and as 1, the same for every image."""

    low: float
    high: float

    def __call__(self, maps: Tensor) -> Tensor:
        """Distances to [0, 1]."""
        return ((maps - self.low) / (self.high - self.low)).clamp(0, 1)

    @staticmethod
    def of(normal: Tensor, pool: Tensor | None) -> "MapScale":
        """Dark up to the highest patch of a usual normal image, so that clean images stay dark.

        Half-way at the highest patch of one normal image in a hundred; or later, where the pool has
        such patches that all of them would be at the end of the scale.
        """
        of_images = normal.flatten(1).max(dim=1).values
        low = float(of_images.median())
        rare = max(high_quantile(of_images), low + 1e-6)
        high = low + 2 * (rare - low)
        if pool is not None:
            high = max(high, high_quantile(pool.flatten(1).max(dim=1).values, 0.95))
        return MapScale(low, high)


def high_quantile(values: Tensor, quantile: float = 0.99) -> float:
    return float(values.kthvalue(max(1, round(quantile * len(values)))).values)


def scaled_maps(maps: Tensor | None, scale: MapScale | None, size: int) -> Tensor:
    """Distances (n, h, w) as maps in [0, 1], in the size of the image."""
    if maps is None or scale is None:
        raise ValueError(
            "this model has no anomaly maps: they come from the pretrained method, with an "
            "encoder that has feature maps (docs/beyond-the-paper.md)"
        )
    return upsampled(scale(maps), size)
