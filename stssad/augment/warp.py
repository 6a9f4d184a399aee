"""Warp: a soft round patch pushed aside, in a random direction: dents, bends, misplaced parts."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .draws import log_uniform
from .shapes import disc, pixel_positions, visible_area


def warped(images: Tensor, a: Tensor, centers: Tensor, directions: Tensor) -> Tensor:
    """Each pixel comes from `shift` x soft patch away: a = (log_size, log_shift)."""
    m = images.shape[-1]
    p = disc(a[:1], centers, m)
    away = torch.stack([torch.cos(directions), torch.sin(directions)], dim=-1)
    source = pixel_positions(m, images)[None] + torch.exp(a[1]) * p[..., None] * away[:, None, None]
    grid = 2 * source.flip(-1) - 1  # column first, in [-1, 1]
    moved = F.grid_sample(
        images, grid.to(images.dtype), padding_mode="reflection", align_corners=False
    )
    return moved.clamp(0, 1)  # interpolation weights can add up to a hair above 1


class Warp:
    """A displacement of learnable area and length."""

    names = ("log_size", "log_shift")
    noun = "a displaced patch"
    speeds = (1.0, 0.5)

    def __init__(self, size: float = 0.03, shifts: Sequence[float] = (0.05,)) -> None:
        self.size, self.shifts = size, shifts

    def initial_values(self) -> list[Tensor]:
        return [torch.tensor([math.log(self.size), math.log(shift)]) for shift in self.shifts]

    def random_value(self, generator: Generator) -> Tensor:
        return torch.stack([log_uniform(0.001, 0.1, generator), log_uniform(0.01, 0.1, generator)])

    def draw(self, n: int, generator: Generator) -> Tensor:
        """Centres, and directions in turns."""
        return torch.rand(n, 3, generator=generator)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        return warped(images, a, noise[:, :2], 2 * math.pi * noise[:, 2])

    def describe(self, a: Tensor) -> dict[str, float]:
        return {"area": visible_area(float(a[0])), "shift": math.exp(float(a[1]))}
