"""Descriptors of an image's patches, from an encoder's feature maps."""

import torch
import torch.nn.functional as F
from torch import Tensor

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
    return torch.cat([shrunk_to(side, m) for m in averaged], dim=1).contiguous()


def shrunk_to(side: int, m: Tensor) -> Tensor:
    """A square map in a smaller size, averaged; by a whole number where possible, as most engines
    have it."""
    own = int(m.shape[-1])
    if own % side == 0:
        return m if own == side else F.avg_pool2d(m, own // side)
    return F.adaptive_avg_pool2d(m, side)


def as_rows(patches: Tensor) -> Tensor:
    """(n, d, h, w) to (n*h*w, d)."""
    return patches.permute(0, 2, 3, 1).reshape(-1, patches.shape[1])
