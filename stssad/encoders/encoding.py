"""Any number of images through an encoder whose weights stay: a chunk at a time, once."""

import math
import tempfile
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..parallel.threads import each
from .encoder import embed
from .features import Features
from .patches import patches_of
from .resize import area_resized

T = TypeVar("T")
Change = Callable[[Tensor, slice], Tensor]  # of a chunk of images, given its rows
CHUNK_PIXELS = 64 * 64 * 64  # of images that are encoded at a time
LARGEST_IN_MEMORY = 2**30  # bytes; larger maps are stored in a temporary file


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
def features_of(encoder: nn.Module, images: Tensor, small_size: int | None = None) -> Features:
    """Of a few images, uint8 or float, in this thread; on the encoder's device.

    With a `small_size`, also of the images at that size.
    """
    floats = as_floats(images, device_of(encoder))
    small = None if small_size is None else features_of(encoder, area_resized(floats, small_size))
    maps: list[Tensor] = encoder.features(floats)  # type: ignore[operator]
    # One layout, whatever the encoder's: stored features and fresh ones then give the same scores.
    return Features(encoder.pooled(maps), patches_of(maps), small)  # type: ignore[operator]


def encode(
    encoder: nn.Module,
    images: Tensor,
    small_size: int | None = None,
    change: Change | None = None,
    on_done: Callable[[int], None] | None = None,
    run: Callable[[Tensor], Features] | None = None,
) -> Features:
    """Features of any number of images, on the CPU.

    With a `small_size`, also of the images at that size. `change` is what is done to each chunk
    first, given which images it holds; `on_done` is called with how many images are encoded; `run`
    is the encoder in another engine (`encoders.engine`).
    """
    features: Features | None = None

    def work(rows: slice) -> tuple[slice, Features]:
        chunk = images[rows]
        if change is not None:
            chunk = change(as_floats(chunk, device_of(encoder)), rows)
        return rows, features_of(encoder, chunk, small_size) if run is None else run(chunk)

    size = chunk_size(images.shape[-1])
    chunks = (slice(i, i + size) for i in range(0, len(images), size))
    for rows, chunk in each(chunks, work):
        features = features or allocate(len(images), chunk)
        copy_chunk(features, rows, chunk)
        if on_done is not None:
            on_done(min(rows.stop, len(images)))
    assert features is not None, "there is at least one image"
    return features


def copy_chunk(features: Features, rows: slice, chunk: Features) -> None:
    """A chunk's features to their rows."""
    features.pooled[rows] = chunk.pooled.cpu()
    if features.patches is not None and chunk.patches is not None:
        features.patches[rows] = chunk.patches.cpu()
    if features.small is not None and chunk.small is not None:
        copy_chunk(features.small, rows, chunk.small)


def allocate(n: int, like: Features) -> Features:
    """For the features of n images, not yet filled."""
    return Features(
        allocate_rows(n, like.pooled),
        None if like.patches is None else allocate_rows(n, like.patches),
        None if like.small is None else allocate(n, like.small),
    )


def allocate_rows(n: int, like: Tensor) -> Tensor:
    """Room for n such rows: in memory or, where that is too much, in a file without a name."""
    shape, dtype = (n, *like.shape[1:]), like.dtype
    empty = torch.empty(0, dtype=dtype)
    if math.prod(shape) * empty.element_size() <= LARGEST_IN_MEMORY:
        return torch.empty(shape, dtype=dtype)
    mapped = np.memmap(tempfile.TemporaryFile(), empty.numpy().dtype, "w+", shape=shape)
    return torch.from_numpy(mapped)


def embed_all(encoder: nn.Module, images: Tensor) -> Tensor:
    """Embeddings (n, d) of any number of images, uint8 or float, on the CPU."""

    @torch.no_grad()
    def work(chunk: Tensor) -> Tensor:
        return embed(encoder, as_floats(chunk, device_of(encoder))).cpu()

    return torch.cat(list(each_chunk(images, work)))
