"""Heatmaps as pictures: the picture in grey, and over it where it is strange.

Heat comes scaled over the whole data set (scorer.HeatRange): two pictures with the same colour are
equally strange there, and a picture without a defect stays cold.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from .images import read_picture
from .local import upsampled
from .scorer import HeatRange
from .settings import Aspect, Reading
from .storage import aside

SIDE = 256  # pixels, of the files
# Colours of heat 0, 1/4, ... 1: dark violet to yellow, readable by the colour-blind and in print.
COLOURS = np.array([(20, 11, 53), (101, 21, 110), (187, 55, 84), (249, 142, 9), (252, 255, 164)])

Pixels = npt.NDArray[np.uint8]


def coloured(heat: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(h, w) in [0, 1] to colours (h, w, 3) in [0, 255]."""
    place = np.clip(heat, 0, 1) * (len(COLOURS) - 1)
    below = np.minimum(place.astype(int), len(COLOURS) - 2)
    share = (place - below)[..., None]
    mixed: npt.NDArray[np.float64] = (1 - share) * COLOURS[below] + share * COLOURS[below + 1]
    return mixed


def overlaid(picture: Pixels, heat: npt.NDArray[np.float64]) -> Pixels:
    """A picture (h, w, 3) in grey, the more covered the hotter (h, w) it is."""
    grey = picture.astype(float).mean(axis=2, keepdims=True).repeat(3, axis=2)
    opacity = 0.8 * np.sqrt(np.clip(heat, 0, 1))[..., None]
    mixed = (1 - opacity) * grey + opacity * coloured(heat)
    out: Pixels = np.clip(mixed.round(), 0, 255).astype(np.uint8)
    return out


def grown(heat: Tensor, side: int) -> npt.NDArray[np.float64]:
    """One picture's heat (h, w) in the size of a file."""
    smooth: npt.NDArray[np.float64] = upsampled(heat[None], side)[0].double().numpy()
    return smooth


class HeatmapWriter:
    """A PNG for each picture, in subfolders like those of the pictures; no two the same."""

    def __init__(self, folder: Path, pictures: Path, heat: HeatRange, aspect: Aspect) -> None:
        self.folder, self.pictures, self.heat = folder, pictures, heat
        self.reading = Reading(SIDE, aspect)
        self.taken: set[Path] = set()

    def __call__(self, picture: Path, places: Tensor) -> None:
        """`places` (h, w): how far each is from the nearest normal one."""
        path = self.folder / self._name(picture)
        shown = read_picture(picture, self.reading)
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside(path) as other:
            Image.fromarray(overlaid(shown, grown(self.heat(places), SIDE))).save(other, "PNG")

    def _name(self, picture: Path) -> Path:
        inner = Path(picture.name)
        if picture.is_relative_to(self.pictures):
            inner = picture.relative_to(self.pictures)
        name, k = inner.with_name(f"{inner.name}.png"), 1
        while name in self.taken:
            k += 1
            name = inner.with_name(f"{inner.name}-{k}.png")
        self.taken.add(name)
        return name


def overlays(pictures: Tensor, heat: Tensor) -> Tensor:
    """uint8 pictures (n, 3, h, h) with heat (n, h', w') over each."""
    side = pictures.shape[-1]
    made = [
        overlaid(p.permute(1, 2, 0).numpy(), grown(h, side))
        for p, h in zip(pictures, heat, strict=True)
    ]
    return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2).contiguous()
