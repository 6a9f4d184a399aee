"""Stain: a soft round patch whose colour is shifted, each channel by its own amount."""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from .draws import log_uniform, uniform
from .shapes import disc, visible_area

# Red, green and blue of the starts: blue (or its mirror image, yellow), and red (or cyan).
TINTS = ((-0.2, -0.1, 0.2), (0.2, -0.2, -0.1))


class Stain:
    """A patch of learnable area and colour shift."""

    names = ("log_size", "red", "green", "blue")
    noun = "a stain"
    speeds = (1.0, 0.3, 0.3, 0.3)

    def __init__(self, size: float = 0.03, tints: Sequence[Sequence[float]] = TINTS) -> None:
        self.size, self.tints = size, tints

    def initial_values(self) -> list[Tensor]:
        return [torch.tensor([math.log(self.size), *tint]) for tint in self.tints]

    def random_value(self, generator: Generator) -> Tensor:
        tint = [uniform(-0.4, 0.4, generator) for _ in range(3)]
        return torch.stack([log_uniform(0.001, 0.1, generator), *tint])

    def draw(self, n: int, generator: Generator) -> Tensor:
        return torch.rand(n, 2, generator=generator)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        p = disc(a[:1], noise, images.shape[-1])
        return (images + a[1:, None, None] * p[:, None]).clamp(0, 1)

    def mirrored(self, a: Tensor) -> Tensor:
        return a * a.new_tensor([1, -1, -1, -1])

    def describe(self, a: Tensor) -> dict[str, float]:
        log_size, red, green, blue = a.tolist()
        return {"area": visible_area(log_size), "red": red, "green": green, "blue": blue}
