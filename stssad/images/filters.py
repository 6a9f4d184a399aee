"""Filters over images and maps."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def gaussian_blur(images: Tensor, sigma: float) -> Tensor:
    """(n, c, m, m), each channel blurred; mirrored at the edge. Differentiable."""
    n_channels, m = images.shape[1], images.shape[-1]
    reach = min(math.ceil(3 * sigma), m - 1)
    x = torch.arange(-reach, reach + 1, dtype=images.dtype, device=images.device)
    kernel = torch.softmax(-x.square() / (2 * sigma**2), dim=0).expand(n_channels, 1, 1, -1)
    padded = F.pad(images, [reach] * 4, mode="reflect")
    across = F.conv2d(padded, kernel, groups=n_channels)
    return F.conv2d(across, kernel.transpose(2, 3), groups=n_channels)
