"""Scratch: a long thin stroke, dark or bright, at a random position and in a random direction."""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from .draws import log_uniform, uniform
from .shapes import stroke


class Scratch:
    """A stroke of learnable length, width and amplitude."""

    names = ("log_length", "log_width", "amplitude")
    noun = "a scratch"
    speeds = (0.5, 0.5, 0.3)

    def __init__(
        self,
        length: float = 0.4,
        widths: Sequence[float] = (0.015, 0.04),
        amplitudes: Sequence[float] = (-0.3,),
    ) -> None:
        """length and widths, as shares of the image's side, and amplitudes: of the starts."""
        self.length, self.widths, self.amplitudes = length, widths, amplitudes

    def initial_values(self) -> list[Tensor]:
        return [
            torch.tensor([math.log(self.length), math.log(width), amplitude])
            for amplitude in self.amplitudes
            for width in self.widths
        ]

    def random_value(self, generator: Generator) -> Tensor:
        length, width = log_uniform(0.1, 0.8, generator), log_uniform(0.01, 0.06, generator)
        return torch.stack([length, width, uniform(-0.5, 0.5, generator)])

    def draw(self, n: int, generator: Generator) -> Tensor:
        """Centres, and directions in units of half a turn."""
        return torch.rand(n, 3, generator=generator)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        p = stroke(a[0], a[1], noise, images.shape[-1])
        return (images + a[2] * p[:, None]).clamp(0, 1)

    def mirrored(self, a: Tensor) -> Tensor:
        return a * a.new_tensor([1, 1, -1])

    def describe(self, a: Tensor) -> dict[str, float]:
        log_length, log_width, amplitude = a.tolist()
        return {
            "length": math.exp(log_length),
            "width": math.exp(log_width),
            "amplitude": amplitude,
        }
