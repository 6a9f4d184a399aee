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
    pairs = find_near(one, other)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]] if one is other else pairs
    return [(int(i), int(j)) for i, j in pairs]


def find_near(one: Thumbnails, other: Thumbnails) -> npt.NDArray[np.int64]:
    """(k, 2): the same; of one list with itself both ways, and each image with itself."""
    limit, starts = find_limit(one), range(0, len(one), CHUNK)
    near = [
        np.argwhere(measure_distances(one[k : k + CHUNK], other) <= limit) + np.array([k, 0])
        for k in starts
    ]
    return np.concatenate(near) if near else np.empty((0, 2), dtype=np.int64)


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
    from scipy.sparse import coo_array  # slow to import
    from scipy.sparse.csgraph import connected_components

    n, pairs = len(thumbnails), find_near(thumbnails, thumbnails)
    linked = coo_array((np.ones(len(pairs), dtype=np.int8), tuple(pairs.T)), shape=(n, n))
    group = connected_components(linked, directed=False)[1]
    lowest = np.full(n, n, dtype=np.int64)
    np.minimum.at(lowest, group, np.arange(n))
    first: npt.NDArray[np.int64] = lowest[group]
    return first
