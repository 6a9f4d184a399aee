"""Patch: CutDiff with a learnable, signed amplitude, so that it can brighten as well as darken."""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from .draws import log_uniform, uniform
from .shapes import ellipse, fold_ellipse, visible_area


def patched(images: Tensor, a: Tensor, centers: Tensor) -> Tensor:
    """Add amplitude x soft patch: a = (log_size, log_ratio, angle, amplitude)."""
    p = ellipse(a[:3], centers, images.shape[-1])
    return (images + a[3] * p[:, None]).clamp(0, 1)


class Patch:
    """A dark or bright elliptic patch of learnable area, aspect, angle and amplitude."""

    names = ("log_size", "log_ratio", "angle", "amplitude")
    noun = "a dark or bright patch"

    def __init__(
        self,
        sizes: Sequence[float] = (0.003, 0.03),
        amplitudes: Sequence[float] = (-0.3,),
        shape_speed: float = 0.1,
    ) -> None:
        """Restarts begin at all sizes with all amplitudes; shape_speed as in CutDiff."""
        self.sizes, self.amplitudes, self.shape_speed = sizes, amplitudes, shape_speed

    @property
    def speeds(self) -> tuple[float, ...]:
        return (1.0, self.shape_speed, self.shape_speed, 0.3)

    def initial_values(self) -> list[Tensor]:
        return [
            torch.tensor([math.log(size), 0.0, 0.0, amplitude])
            for amplitude in self.amplitudes
            for size in self.sizes
        ]

    def random_value(self, generator: Generator) -> Tensor:
        log_size = log_uniform(0.001, 0.1, generator)
        log_ratio = log_uniform(1 / 4, 4, generator) / 2
        angle = uniform(-math.pi / 4, math.pi / 4, generator)
        return torch.stack([log_size, log_ratio, angle, uniform(-0.5, 0.5, generator)])

    def draw(self, n: int, generator: Generator) -> Tensor:
        return torch.rand(n, 2, generator=generator)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        return patched(images, a, noise)

    def mirrored(self, a: Tensor) -> Tensor:
        return a * a.new_tensor([1, 1, 1, -1])

    def describe(self, a: Tensor) -> dict[str, float]:
        log_size, log_ratio, angle, amplitude = a.tolist()
        aspect, degrees = fold_ellipse(log_ratio, angle)
        return {
            "area": visible_area(log_size),
            "aspect": aspect,
            "angle_deg": degrees,
            "amplitude": amplitude,
        }
