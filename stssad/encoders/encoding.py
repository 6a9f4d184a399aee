"""Any number of images through an encoder whose weights stay: a chunk at a time, once."""

import math
import tempfile
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..features import Features
from ..threads import each
from .encoder import embed

T = TypeVar("T")
CHUNK_PIXELS = 64 * 64 * 64  # of images that are encoded at a time
LARGEST_IN_MEMORY = 2**30  # bytes; larger maps are kept in a temporary file


def as_floats(images: Tensor, device: torch.device) -> Tensor:
    """Images as torch's default float in [0, 1]; they are stored as uint8 where they were so."""
    floats = images.to(device, torch.get_default_dtype())
    return floats / 255 if images.dtype == torch.uint8 else floats


def device_of(module: nn.Module) -> torch.device:
    tensors = [*module.parameters(), *module.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


def chunk_size(image_size: int) -> int:
    """As many images as are encoded fastest, in little memory."""
    return max(4, min(64, CHUNK_PIXELS // image_size**2))


def each_chunk(images: Tensor, work: Callable[[Tensor], T]) -> Iterator[T]:
    """The result of `work` for a few images at a time, in order."""
    return each(torch.split(images, chunk_size(images.shape[-1])), work)


@torch.no_grad()
def features_of(encoder: nn.Module, images: Tensor) -> Features:
    """Of a few images, uint8 or float, in this thread; on the encoder's device."""
    maps: list[Tensor] = encoder.features(as_floats(images, device_of(encoder)))  # type: ignore[operator]
    # One layout, whatever the encoder's: kept features and fresh ones then give the same scores.
    return Features([m.contiguous() for m in maps], encoder.pooled(maps))  # type: ignore[operator]


def encode(encoder: nn.Module, images: Tensor) -> Features:
    """Features of any number of images, on the CPU."""
    kept: Features | None = None
    done = 0
    for chunk in each_chunk(images, lambda some: features_of(encoder, some)):
        if kept is None:
            kept = Features(
                [store((len(images), *m.shape[1:]), m.dtype) for m in chunk.maps],
                store((len(images), *chunk.pooled.shape[1:]), chunk.pooled.dtype),
            )
        rows = slice(done, done + len(chunk))
        for whole, part in zip([*kept.maps, kept.pooled], [*chunk.maps, chunk.pooled], strict=True):
            whole[rows] = part.cpu()
        done += len(chunk)
    assert kept is not None, "there is at least one image"
    return kept


def store(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Room for numbers: in memory or, where there are too many, in a file without a name."""
    empty = torch.empty(0, dtype=dtype)
    if math.prod(shape) * empty.element_size() <= LARGEST_IN_MEMORY:
        return torch.empty(shape, dtype=dtype)
    mapped = np.memmap(tempfile.TemporaryFile(), empty.numpy().dtype, "w+", shape=shape)
    return torch.from_numpy(mapped)


def embed_all(encoder: nn.Module, images: Tensor) -> Tensor:
    """Embeddings (n, d) of any number of images, uint8 or float, on the CPU."""

    @torch.no_grad()
    def work(some: Tensor) -> Tensor:
        return embed(encoder, as_floats(some, device_of(encoder))).cpu()

    return torch.cat(list(each_chunk(images, work)))
