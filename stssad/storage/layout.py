"""The one memory layout of what a fitted model computes with.

BLAS sums in another order for a column-major or an oddly aligned matrix. A fitted model and the
same one loaded from a file give bit-identical scores only if both hold their numbers alike.
"""

from collections.abc import Mapping

from torch import Tensor, contiguous_format, nn


def canonical(tensor: Tensor) -> Tensor:
    """A copy, row-major and aligned as torch aligns what it allocates itself."""
    return tensor.detach().clone(memory_format=contiguous_format)


def hold(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Give a module its fitted arrays, by the names of its `state_dict`.

    `load_state_dict` would ask for shapes that are known only once there are data.
    """
    for name, tensor in tensors.items():
        owner, _, leaf = name.rpartition(".")
        part = module.get_submodule(owner)
        if leaf not in part._buffers:
            raise KeyError(name)
        setattr(part, leaf, canonical(tensor))
    return module
