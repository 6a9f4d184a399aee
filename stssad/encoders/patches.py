"""Descriptors of an image's patches, from an encoder's feature maps."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .resize import area_resized

N_MAPS = 2  # of the encoder's, the finest first


def patches_of(maps: list[Tensor]) -> Tensor | None:
    """(n, c, h, w): the first two maps, averaged over 3x3 neighbours, in the size of the second.

    The finer map says where a defect is, the coarser one what; at the finer one's size there would
    be four times as many patches, and no better scores. None where there is nothing to place.
    """
    chosen = maps[:N_MAPS]
    if maps[0].shape[-1] == 1:
        return None
    side = int(chosen[-1].shape[-1])
    averaged = [F.avg_pool2d(m, 3, 1, 1) for m in chosen]
    return torch.cat([area_resized(m, side) for m in averaged], dim=1).contiguous()


def as_rows(patches: Tensor) -> Tensor:
    """(n, d, h, w) to (n*h*w, d)."""
    return patches.permute(0, 2, 3, 1).reshape(-1, patches.shape[1])
