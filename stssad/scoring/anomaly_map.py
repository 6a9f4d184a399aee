"""Anomaly maps in the image's size, on one scale for all images of a model."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ..filters import gaussian_blur

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
        """From the usual normal patch to the pool's highest-scoring, or beyond all normal ones."""
        low = float(normal.median())
        beyond = low + 1.5 * (high_quantile(normal) - low)
        of_pool = high_quantile(pool) if pool is not None else beyond
        return MapScale(low, max(of_pool, beyond, low + 1e-6))


def high_quantile(values: Tensor) -> float:
    """So high that one in two hundred exceeds it."""
    flat = values.flatten()
    return float(flat.kthvalue(max(1, round(0.995 * len(flat)))).values)
