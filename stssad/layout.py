"""The one memory layout of what a fitted model computes with.

BLAS sums in another order for a column-major or an oddly aligned matrix. A fitted model and the
same one loaded from a file give bit-identical scores only if both hold their numbers alike.
"""

from torch import Tensor, contiguous_format


def canonical(tensor: Tensor) -> Tensor:
    """A copy, row-major and aligned as torch aligns what it allocates itself."""
    return tensor.detach().clone(memory_format=contiguous_format)
