"""Blur: a soft round patch where detail is lost or, with a negative strength, exaggerated."""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from ..images.filters import gaussian_blur
from .draws import log_uniform, uniform
from .shapes import disc, visible_area

SIGMA = 0.02  # of the blur, as a share of the image's side


def smoothed(images: Tensor) -> Tensor:
    return gaussian_blur(images, max(SIGMA * images.shape[-1], 0.5))


class Blur:
    """A patch of learnable area and strength."""

    names = ("log_size", "strength")
    noun = "a blurred or roughened patch"
    speeds = (1.0, 0.5)

    def __init__(self, size: float = 0.03, strengths: Sequence[float] = (0.7,)) -> None:
        self.size, self.strengths = size, strengths

    def initial_values(self) -> list[Tensor]:
        return [torch.tensor([math.log(self.size), strength]) for strength in self.strengths]

    def random_value(self, generator: Generator) -> Tensor:
        return torch.stack([log_uniform(0.001, 0.1, generator), uniform(-1.0, 1.0, generator)])

    def draw(self, n: int, generator: Generator) -> Tensor:
        return torch.rand(n, 2, generator=generator)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        p = disc(a[:1], noise, images.shape[-1])
        return (images + a[1] * p[:, None] * (smoothed(images) - images)).clamp(0, 1)

    def mirrored(self, a: Tensor) -> Tensor:
        return a * a.new_tensor([1, -1])

    def describe(self, a: Tensor) -> dict[str, float]:
        return {"area": visible_area(float(a[0])), "strength": float(a[1])}
