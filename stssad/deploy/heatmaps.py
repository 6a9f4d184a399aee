"""Heatmaps: the image in grey, and its anomaly map over it in colour.

Maps come scaled over the whole data set (scoring.anomaly_map.MapScale): two images with the same
colour are equally anomalous there, and an image without a defect stays dark.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from ..images.decode import read_image, upright_size
from ..images.reading import Reading
from ..scoring.anomaly_map import MapScale, upsampled
from ..storage.files import temporary

SIDE = 256  # pixels, of the files: the longer side
LONGEST_STEM = 200  # bytes; a name may have 255
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
    """A PNG for each image, named after it, in subfolders like those of the images.

    No file that is there is overwritten: where a name is taken, a number is added.
    """

    def __init__(self, folder: Path, images: Path, scale: MapScale, reading: Reading) -> None:
        self.folder, self.images, self.scale = folder, images, scale
        self.reading = replace(reading, image_size=SIDE)
        home = images if images.is_dir() else images.parent
        if folder.resolve() == home.resolve():
            raise ValueError(
                f"{str(folder)!r} holds the images themselves; give --heatmaps another folder"
            )

    def __call__(self, image: Path, distances: Tensor) -> None:
        """`distances` (h, w): how far each patch is from the nearest normal one."""
        path = self._free(self.folder / self._inner(image))
        heatmap = Image.fromarray(
            overlaid(read_image(image, self.reading), grown(self.scale(distances), SIDE))
        )
        if self.reading.aspect == "stretch":
            heatmap = heatmap.resize(fitted(upright_size(image), SIDE))
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary(path) as other:
            heatmap.save(other, "PNG")

    def _inner(self, image: Path) -> Path:
        """Below the folder of heatmaps as the image is below its own."""
        if image.is_relative_to(self.images) and image != self.images:
            return image.relative_to(self.images)
        return Path(image.name)

    def _free(self, wanted: Path) -> Path:
        stem = os.fsdecode(os.fsencode(wanted.stem)[:LONGEST_STEM])
        path, k = wanted.with_name(f"{stem}.png"), 1
        while path.exists() or path.is_symlink():
            k += 1
            path = wanted.with_name(f"{stem}-{k}.png")
        return path


def fitted(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Width and height in the same ratio, the longer one `side`."""
    longest = max(size)
    return max(1, round(size[0] * side / longest)), max(1, round(size[1] * side / longest))
