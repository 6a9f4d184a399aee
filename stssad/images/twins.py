"""Which images show the same: copies of one file, or one photograph that was saved again.

A small grey thumbnail is an image's fingerprint. Saved again as JPEG of low quality, or resized, an
image moves by about one grey level in it; two photographs of unlike parts by ten or more, and of
parts that lie in one place by two at least. Where a camera, fixed as its parts are, sees all images
alike but for noise, twins must be much closer than others.
"""

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

SIDE = 32  # of a thumbnail, in pixels
SAME = 1.2  # grey levels, root mean square: no more between images that show the same
CLOSER = 0.1  # of the usual distance between two images
CHUNK = 512  # images at a time

Thumbnails = npt.NDArray[np.float32]


def make_thumbnails(images: Tensor) -> Thumbnails:
    """(n, 1024) of images (n, 3, m, m): grey, from 0 to 255."""
    rows = [grey_thumbnails(chunk) for chunk in torch.split(images, CHUNK)]
    return np.concatenate(rows).astype(np.float32)


def grey_thumbnails(images: Tensor) -> Thumbnails:
    values = images.float() if images.dtype == torch.uint8 else 255 * images.float()
    small = F.adaptive_avg_pool2d(values.mean(dim=1, keepdim=True), SIDE)
    thumbnails: Thumbnails = small.flatten(1).cpu().numpy()
    return thumbnails


def near_pairs(one: Thumbnails, other: Thumbnails) -> list[tuple[int, int]]:
    """Numbers of images, one from each, that show the same; of one list with itself, each pair
    once."""
    pairs, limit = [], find_limit(one)
    for start in range(0, len(one), CHUNK):
        near = np.argwhere(measure_distances(one[start : start + CHUNK], other) <= limit)
        pairs += [(start + int(i), int(j)) for i, j in near]
    return [(i, j) for i, j in pairs if i < j] if one is other else pairs


def find_limit(thumbnails: Thumbnails) -> float:
    """The distance up to which two images show the same."""
    some = thumbnails[:: max(1, len(thumbnails) // CHUNK)]
    usual = float(np.median(measure_distances(some, some))) if len(some) > 1 else SAME
    return max(min(SAME, CLOSER * usual), 1e-3)


def measure_distances(one: Thumbnails, other: Thumbnails) -> npt.NDArray[np.float64]:
    """(n, k): grey levels, root mean square."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    distances: npt.NDArray[np.float64] = np.sqrt(np.maximum(squares, 0) / a.shape[1])
    return distances


def twin_groups(thumbnails: Thumbnails) -> npt.NDArray[np.int64]:
    """(n,): for each image the number of the first that shows the same, which may be itself."""
    first = np.arange(len(thumbnails))
    for i, j in near_pairs(thumbnails, thumbnails):
        a, b = sorted((first[i], first[j]))
        first[first == b] = a
    return first
