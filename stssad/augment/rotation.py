"""Rotation of the whole image (Sec. 4.2.2), as a spatial transformer: grid and sampling."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .draws import uniform

Padding = Literal["zeros", "border", "reflection"]


def rotate(images: Tensor, angle: Tensor, padding: Padding = "reflection") -> Tensor:
    """Turn images (n, 3, m, m) counter-clockwise by `angle` radians, a scalar tensor."""
    cos, sin, zero = torch.cos(angle), torch.sin(angle), torch.zeros_like(angle)
    # The grid asks where each target pixel comes from, in (x right, y down): the inverse rotation.
    matrix = torch.stack([torch.stack([cos, -sin, zero]), torch.stack([sin, cos, zero])])
    grid = F.affine_grid(
        matrix.expand(images.shape[0], 2, 3), list(images.shape), align_corners=False
    )
    turned = F.grid_sample(
        images, grid.to(images.dtype), mode="bilinear", padding_mode=padding, align_corners=False
    )
    return turned.clamp(0, 1)  # interpolation weights can add up to a hair above 1


class Rotation:
    """One angle for all images. The paper doesn't say what fills the corners: here the image's
    reflection. With `zeros` the detector learns black corners instead of the content, and L_val
    has a period of 90 degrees, whatever the anomaly (docs/paper-map.md)."""

    names = ("angle",)
    noun = "a rotation"

    def __init__(
        self,
        padding: Padding = "reflection",
        angles_deg: Sequence[float] = (45, 135, 225, 315),
    ) -> None:
        """angles_deg: where restarts begin; the paper's four by default."""
        self.padding = padding
        self.angles_deg = angles_deg

    def initial_values(self) -> list[Tensor]:
        return [torch.tensor([math.radians(degrees)]) for degrees in self.angles_deg]

    def random_value(self, generator: Generator) -> Tensor:
        return uniform(0, 2 * math.pi, generator).reshape(1)

    def draw(self, n: int, generator: Generator) -> Tensor:
        return torch.zeros(n, 0)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        return rotate(images, a[0], self.padding)

    def describe(self, a: Tensor) -> dict[str, float]:
        return {"angle_deg": math.degrees(float(a[0])) % 360}
