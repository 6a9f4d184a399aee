"""Blur: a soft round patch where detail is lost or, with a negative strength, exaggerated."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .cutdiff import patch
from .draws import log_uniform, uniform

SIGMA = 0.02  # of the blur, as a share of the picture's side


def smoothed(images: Tensor) -> Tensor:
    """Blurred by a Gaussian."""
    m = images.shape[-1]
    sigma = max(SIGMA * m, 0.5)
    reach = min(math.ceil(3 * sigma), m - 1)
    x = torch.arange(-reach, reach + 1, dtype=images.dtype, device=images.device)
    kernel = torch.softmax(-x.square() / (2 * sigma**2), dim=0).expand(3, 1, 1, -1)
    padded = F.pad(images, [reach] * 4, mode="reflect")
    across = F.conv2d(padded, kernel, groups=3)
    return F.conv2d(across, kernel.transpose(2, 3), groups=3)


class Blur:
    """A patch of learnable area and strength."""

    names = ("log_area", "strength")
    noun = "a blurred or roughened patch"
    speeds = (1.0, 0.5)

    def __init__(self, area: float = 0.03, strengths: Sequence[float] = (0.7, -0.7)) -> None:
        self.area, self.strengths = area, strengths

    def initial_values(self) -> list[Tensor]:
        return [torch.tensor([math.log(self.area), strength]) for strength in self.strengths]

    def random_value(self, generator: Generator) -> Tensor:
        return torch.stack([log_uniform(0.001, 0.1, generator), uniform(-1.0, 1.0, generator)])

    def draw(self, n: int, generator: Generator) -> Tensor:
        return torch.rand(n, 2, generator=generator)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        unturned = torch.zeros(2, dtype=a.dtype, device=a.device)
        p = patch(torch.cat([a[:1], unturned]), noise, images.shape[-1])
        return (images + a[1] * p[:, None] * (smoothed(images) - images)).clamp(0, 1)

    def describe(self, a: Tensor) -> dict[str, float]:
        return {"area": math.exp(float(a[0])), "strength": float(a[1])}
