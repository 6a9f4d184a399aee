"""Texture crops with planted patches: tasks whose true augmentation is known (Sec. 5.2).

The textures are scikit-image's `brick`, `grass` and `gravel` (512 px, grey, CC0).
"""

import math

import numpy as np
import torch
from torch import Generator, Tensor

from ..augment.cutdiff import cutdiff
from .task import Task

TEXTURES = ("brick", "grass", "gravel")


def texture(name: str) -> Tensor:
    """One grey texture picture as uint8 (512, 512)."""
    if name not in TEXTURES:
        raise ValueError(f"unknown texture {name!r}; use one of {', '.join(TEXTURES)}")
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            "the textures come with scikit-image; install it with: pip install 'stssad[demo]'"
        ) from error
    return torch.from_numpy(np.asarray(getattr(data, name)()).copy())


def texture_crops(
    name: str, n: int, image_size: int, generator: Generator, crop: int = 128
) -> Tensor:
    """n random square crops, `crop` pixels wide, shrunk to image_size: float (n, 3, m, m)."""
    picture = texture(name).float() / 255
    corners = torch.randint(0, len(picture) - crop + 1, (n, 2), generator=generator)
    crops = torch.stack([picture[i : i + crop, j : j + crop] for i, j in corners.tolist()])
    shrunk = torch.nn.functional.interpolate(
        crops[:, None], size=(image_size, image_size), mode="area"
    )
    return shrunk.expand(n, 3, image_size, image_size).contiguous()


def planted_patch(
    area: float,
    aspect: float = 1.0,
    texture: str = "gravel",
    image_size: int = 64,
    n_train: int = 240,
    n_pool: int = 128,
    contamination: float = 0.5,
    seed: int = 0,
) -> Task:
    """Crops of one texture, of which a share of the pool carries CutDiff's patch; tested on it."""
    generator = torch.Generator().manual_seed(seed)
    train = texture_crops(texture, n_train, image_size, generator)
    pool = texture_crops(texture, n_pool, image_size, generator)
    labels = (torch.arange(n_pool) < round(contamination * n_pool)).long()
    a = torch.tensor([math.log(area), math.log(aspect) / 2, 0.0])
    patched = cutdiff(pool, a, torch.rand(n_pool, 2, generator=generator))
    pool = torch.where(labels[:, None, None, None] == 1, patched, pool)
    order = torch.randperm(n_pool, generator=generator)
    pool, labels = pool[order], labels[order]
    name = f"area {area:g}, aspect {aspect:g} on {texture}"
    return Task(name, train, pool, pool, labels.numpy())
