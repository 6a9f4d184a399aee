"""CutOut (DeVries and Taylor, 2017): a black rectangle at a random position. For baselines only."""

import math

import torch
from torch import Generator, Tensor

from .draws import log_uniform
from .shapes import pixel_positions


def half_sides(a: Tensor) -> Tensor:
    """Half the height and width: the rectangle covers s², its area."""
    log_area, log_ratio = a.unbind()
    s, r = torch.exp(log_area / 2), torch.exp(log_ratio)
    return torch.stack([s / r, s * r]) / 2


def rectangle(a: Tensor, centers: Tensor, m: int) -> Tensor:
    """Which pixels lie in the rectangle of a = (log_area, log_ratio): bool (n, m, m)."""
    offset = pixel_positions(m, centers)[None] - centers[:, None, None, :]
    return (offset.abs() <= half_sides(a)).all(-1)


def initial_rectangles() -> list[Tensor]:
    """Squares over the range that random_rectangle draws from."""
    return [torch.tensor([math.log(area), 0.0]) for area in (0.02, 0.055, 0.15)]


def random_rectangle(generator: Generator) -> Tensor:
    """`a` with area in [0.02, 0.15] and aspect in [0.3, 3.3], both log-uniform."""
    return torch.stack([log_uniform(0.02, 0.15, generator), log_uniform(0.3, 3.3, generator) / 2])


def describe_rectangle(a: Tensor) -> dict[str, float]:
    log_area, log_ratio = a.tolist()
    return {"area": math.exp(log_area), "aspect": math.exp(2 * log_ratio)}


class CutOut:
    """A black rectangle. Not differentiable in `a`: its edges jump from pixel to pixel."""

    names = ("log_area", "log_ratio")

    def initial_values(self) -> list[Tensor]:
        return initial_rectangles()

    def random_value(self, generator: Generator) -> Tensor:
        return random_rectangle(generator)

    def draw(self, n: int, generator: Generator) -> Tensor:
        return torch.rand(n, 2, generator=generator)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        inside = rectangle(a, noise, images.shape[-1])
        return images.masked_fill(inside[:, None], 0.0)

    def describe(self, a: Tensor) -> dict[str, float]:
        return describe_rectangle(a)
