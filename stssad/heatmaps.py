"""Heatmaps: the image in grey, and its anomaly map over it in colour.

Maps come scaled over the whole data set (scoring.anomaly_map.MapScale): two images with the same
colour are equally anomalous there, and an image without a defect stays dark.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from .images import read_image
from .scoring.anomaly_map import MapScale, upsampled
from .settings import Aspect, Reading
from .storage import temporary

SIDE = 256  # pixels, of the files
# Colours of the map's 0, 1/4, ... 1: dark violet to yellow, for the colour-blind and for print too.
COLOURS = np.array([(20, 11, 53), (101, 21, 110), (187, 55, 84), (249, 142, 9), (252, 255, 164)])

Pixels = npt.NDArray[np.uint8]


def coloured(map_: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(h, w) in [0, 1] to colours (h, w, 3) in [0, 255]."""
    position = np.clip(map_, 0, 1) * (len(COLOURS) - 1)
    below = np.minimum(position.astype(int), len(COLOURS) - 2)
    share = (position - below)[..., None]
    mixed: npt.NDArray[np.float64] = (1 - share) * COLOURS[below] + share * COLOURS[below + 1]
    return mixed


def overlaid(image: Pixels, map_: npt.NDArray[np.float64]) -> Pixels:
    """An image (h, w, 3) in grey, covered by the colours of its map (h, w) where that is high."""
    grey = image.astype(float).mean(axis=2, keepdims=True).repeat(3, axis=2)
    opacity = 0.8 * np.sqrt(np.clip(map_, 0, 1))[..., None]
    mixed = (1 - opacity) * grey + opacity * coloured(map_)
    out: Pixels = np.clip(mixed.round(), 0, 255).astype(np.uint8)
    return out


def grown(map_: Tensor, side: int) -> npt.NDArray[np.float64]:
    """One image's map (h, w) in the size of a file."""
    smooth: npt.NDArray[np.float64] = upsampled(map_[None], side)[0].double().numpy()
    return smooth


class HeatmapWriter:
    """A PNG for each image, in subfolders like those of the images; no two the same."""

    def __init__(self, folder: Path, images: Path, scale: MapScale, aspect: Aspect) -> None:
        self.folder, self.images, self.scale = folder, images, scale
        self.reading = Reading(SIDE, aspect)
        self.taken: set[Path] = set()

    def __call__(self, image: Path, distances: Tensor) -> None:
        """`distances` (h, w): how far each patch is from the nearest normal one."""
        path = self.folder / self._name(image)
        shown = read_image(image, self.reading)
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary(path) as other:
            heatmap = overlaid(shown, grown(self.scale(distances), SIDE))
            Image.fromarray(heatmap).save(other, "PNG")

    def _name(self, image: Path) -> Path:
        inner = Path(image.name)
        if image.is_relative_to(self.images):
            inner = image.relative_to(self.images)
        name, k = inner.with_name(f"{inner.name}.png"), 1
        while name in self.taken:
            k += 1
            name = inner.with_name(f"{inner.name}-{k}.png")
        self.taken.add(name)
        return name


def overlays(images: Tensor, maps: Tensor) -> Tensor:
    """uint8 images (n, 3, h, h) with a map (n, h', w') over each."""
    side = images.shape[-1]
    made = [
        overlaid(x.permute(1, 2, 0).numpy(), grown(m, side))
        for x, m in zip(images, maps, strict=True)
    ]
    return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2).contiguous()
