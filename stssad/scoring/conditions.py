"""Was the pool taken under the conditions of the normal images? Light, contrast, colour, focus.

Each is measured on blocks of an image, at three quartiles of the blocks. An image counts where all
three lie beyond those of normal images: a defect darkens some blocks, other light darkens all.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

BLOCKS = 8  # to a side
OUTSIDE = 0.01  # of normal images lie beyond the limits on either side
LEAST_SHARE = 0.1  # of the pool that must lie beyond them, more than chance may
LEAST_CHANGE = {"brightness": 0.02, "contrast": 0.1, "colour": 0.01, "sharpness": 0.15}
P_VALUE = 1e-4
CONDITIONS = tuple(LEAST_CHANGE)

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """A share of the pool lies outside what normal images show; medians of both."""

    name: str
    share: float
    normal: float
    pool: float  # of the images outside


def find_differences(train: Tensor, pool: Tensor) -> list[Difference]:
    """What differs beyond chance, between images (n, 3, m, m) of both."""
    of_train, of_pool = measure_quartiles(train), measure_quartiles(pool)
    differences = (compare(name, of_train[name], of_pool[name]) for name in of_train)
    return [x for x in differences if x is not None]


def compare(name: str, normal: Values, pool: Values) -> Difference | None:
    """Where too many of the pool (n, 3) lie beyond the limits, on the side with more of them."""
    from scipy.stats import binom  # slow to import

    low, high = np.quantile(normal, [OUTSIDE, 1 - OUTSIDE], axis=0)
    usual, margin = np.median(normal, axis=0), LEAST_CHANGE[name]
    sides = [
        (pool < np.minimum(low, usual - margin)).all(axis=1),
        (pool > np.maximum(high, usual + margin)).all(axis=1),
    ]
    outside = max(sides, key=lambda side: side.sum())
    n, k = len(pool), int(outside.sum())
    # The limits are estimates, too: twice the share is allowed for.
    if k / n < LEAST_SHARE or binom.sf(k - 1, n, 2 * OUTSIDE + 2 / len(normal)) > P_VALUE:
        return None
    return Difference(name, k / n, float(usual[1]), float(np.median(pool[outside, 1])))


@torch.no_grad()
def measure_quartiles(images: Tensor) -> dict[str, Values]:
    """For each image (n, 3): mean grey; log contrast; blue less red; log sharpness."""
    chunks = [_measure_chunk(chunk) for chunk in torch.split(images, 32)]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def measure_conditions(images: Tensor) -> Tensor:
    """(n, 4): of each image the values of its median block, in the order of CONDITIONS."""
    quartiles = measure_quartiles(images)
    return torch.from_numpy(np.stack([quartiles[name][:, 1] for name in CONDITIONS], axis=1))


def _measure_chunk(images: Tensor) -> dict[str, Values]:
    x = images.float() / 255 if images.dtype == torch.uint8 else images.float()
    grey = x.mean(dim=1, keepdim=True)
    mean = average_blocks(grey)
    spread = (average_blocks(grey.square()) - mean.square()).clamp_min(0).sqrt()
    gradients = grey[..., 1:, 1:] - grey[..., :-1, 1:], grey[..., 1:, 1:] - grey[..., 1:, :-1]
    slope = sum(average_blocks(g.abs()) for g in gradients)
    assert isinstance(slope, Tensor)
    colour = average_blocks(x[:, 2:3]) - average_blocks(x[:, :1])
    values = {
        "brightness": mean,
        "contrast": (spread + 1e-3).log(),
        "colour": colour,
        "sharpness": (slope + 1e-3).log() - (spread + 1e-3).log(),
    }
    quartiles = x.new_tensor([0.25, 0.5, 0.75])
    return {
        name: value.flatten(1).quantile(quartiles, dim=1).T.double().cpu().numpy()
        for name, value in values.items()
    }


def average_blocks(values: Tensor) -> Tensor:
    """(n, 1, 8, 8): means over blocks."""
    return F.adaptive_avg_pool2d(values, BLOCKS)
