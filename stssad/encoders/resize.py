"""Images and maps in a smaller size, averaged over areas: in operations that ONNX has."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor


def area_resized(images: Tensor, size: int) -> Tensor:
    """(n, c, size, size) of float (n, c, h, w), as `interpolate(mode="area")` makes them.

    A side that isn't a multiple is averaged by a product with a matrix: exporters know no adaptive
    pooling.
    """
    height, width = int(images.shape[-2]), int(images.shape[-1])
    if height % size == 0 and width % size == 0:
        strides = (height // size, width // size)
        return images if strides == (1, 1) else F.avg_pool2d(images, strides)
    rows, columns = (torch.from_numpy(averaging(side, size)).to(images) for side in (height, width))
    return rows @ images @ columns.T


@lru_cache(maxsize=64)
def averaging(side: int, size: int) -> npt.NDArray[np.float64]:
    """(size, side): each row averages the entries that one of the new ones covers."""
    matrix = np.zeros((size, side))
    for i in range(size):
        begin, end = i * side // size, -(-(i + 1) * side // size)
        matrix[i, begin:end] = 1 / (end - begin)
    return matrix
