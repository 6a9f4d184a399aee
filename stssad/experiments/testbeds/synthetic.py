"""Texture crops with planted patches: tasks whose true augmentation is known (Sec. 5.2).

The textures are scikit-image's `brick`, `grass` and `gravel` (512 px, grey, CC0).
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from ...augment import Augmentation
from ...augment.cutdiff import cutdiff
from ...images.reading import Reading
from ...images.source import find_images, read_images
from .task import Task

TEXTURES = ("brick", "grass", "gravel")


def texture(name: str) -> Tensor:
    """One grey texture image as uint8 (512, 512)."""
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
    image = texture(name).float() / 255
    corners = torch.randint(0, len(image) - crop + 1, (n, 2), generator=generator)
    crops = torch.stack([image[i : i + crop, j : j + crop] for i, j in corners.tolist()])
    shrunk = torch.nn.functional.interpolate(
        crops[:, None], size=(image_size, image_size), mode="area"
    )
    return shrunk.expand(n, 3, image_size, image_size).contiguous()


def planted_patch(
    size: float,
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
    name = f"size {size:g}, aspect {aspect:g} on {texture}"
    return planted(name, train, pool, size, aspect, contamination, generator)


def planted_augmentation(
    augmentation: Augmentation,
    a: Tensor,
    texture: str,
    image_size: int,
    n_train: int,
    n_pool: int,
    contamination: float,
    seed: int,
) -> Task:
    """The same with any augmentation."""
    generator = torch.Generator().manual_seed(seed)
    train = texture_crops(texture, n_train, image_size, generator)
    pool = texture_crops(texture, n_pool, image_size, generator)
    defective = augmentation(pool, a, augmentation.draw(n_pool, generator))
    return shuffled(type(augmentation).__name__, train, pool, defective, contamination, generator)


def planted(
    name: str,
    train: Tensor,
    pool: Tensor,
    size: float,
    aspect: float,
    contamination: float,
    generator: Generator,
) -> Task:
    """A share of the pool's float images gets CutDiff's patch, unturned; in random order."""
    a = torch.tensor([math.log(size), math.log(aspect) / 2, 0.0])
    patched = cutdiff(pool, a, torch.rand(len(pool), 2, generator=generator))
    return shuffled(name, train, pool, patched, contamination, generator)


def shuffled(
    name: str,
    train: Tensor,
    pool: Tensor,
    defective: Tensor,
    contamination: float,
    generator: Generator,
) -> Task:
    """A share of the pool's images gives way to its defective form; in random order."""
    n_pool = len(pool)
    labels = (torch.arange(n_pool) < round(contamination * n_pool)).long()
    pool = torch.where(labels[:, None, None, None] == 1, defective, pool)
    order = torch.randperm(n_pool, generator=generator)
    pool, labels = pool[order], labels[order]
    return Task(name, train, pool, pool, labels.numpy())


# The 25 demonstrative tasks (Sec. 5.2): whether the paper's ratio is r or its square it doesn't
# say; here it is the patch's aspect.
SIZES = (0.01, 0.02, 0.04, 0.08, 0.16)
ASPECTS = (0.25, 0.5, 1.0, 2.0, 4.0)
DEFAULT_TEXTURE = "grass"


def demonstrative_tasks() -> dict[str, tuple[float, float]]:
    """Names of the 25 tasks, with planted size (the paper's) and aspect."""
    return {f"{size:g}/{aspect:g}": (size, aspect) for size in SIZES for aspect in ASPECTS}


def demonstrative(task: str, reading: Reading, folder: Path | None, seed: int) -> Task:
    """One of the 25 tasks on crops of a texture or, if given, on a folder of normal images.

    Of a folder a third becomes the pool. The images depend on the seed, not on the task, as in
    the paper: only what is planted differs.
    """
    if task not in (known := demonstrative_tasks()):
        raise ValueError(f"unknown demonstrative task {task!r}; use one of {', '.join(known)}")
    size, aspect = known[task]
    if folder is None:
        return planted_patch(size, aspect, DEFAULT_TEXTURE, reading.image_size, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    images = read_images(find_images(folder), reading)[0].float() / 255
    order = torch.randperm(len(images), generator=generator)
    n_pool = len(order) // 3
    train, pool = images[order[n_pool:]], images[order[:n_pool]]
    return planted(f"demonstrative/{task}", train, pool, size, aspect, 0.5, generator)
