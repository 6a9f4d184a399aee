"""CutDiff, the paper's differentiable CutOut (Sec. 4.2.1, Algorithm 2).

Legend: n images of m x m pixels; g pixel positions, row first; mu patch centres; s size, r ratio;
a = (log_size, log_ratio, angle).

The paper leaves three things open, settled here (docs/paper-map.md):
- its "patch size" is an area fraction, so s = sqrt(size); what is visibly changed is pi times that;
- its "ratio starts at zero" is log r = 0, since S holds s/r; the patch's aspect is r squared;
- L = R S is rotation times scale rather than the lower triangle itself; both give any ellipse.
"""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from .draws import log_uniform, uniform
from .shapes import ellipse, fold_ellipse, visible_area


def cutdiff(images: Tensor, a: Tensor, centers: Tensor) -> Tensor:
    """Darken one soft patch in each image: images (n, 3, m, m), a (3,), centers (n, 2)."""
    p = ellipse(a, centers, images.shape[-1])
    return (images - p[:, None]).clamp(0, 1)  # line 6


class CutDiff:
    """A dark elliptic patch of learnable size, aspect and angle, at a random position."""

    names = ("log_size", "log_ratio", "angle")
    noun = "a dark patch"

    def __init__(
        self, sizes: Sequence[float] = (0.0001, 0.001, 0.01, 0.1), shape_speed: float = 0.1
    ) -> None:
        """sizes: where restarts begin, round and unturned; the paper's four by default. Random
        values are drawn from their range.
        shape_speed: how fast ratio and angle move, against the size's 1.

        Stretching a small patch into a stripe makes it as visible as a larger one, and spreads
        Z_aug, which L_val's normalisation rewards; at equal speed a patch often ends as a stripe
        where a round one was planted.
        """
        self.sizes = sizes
        self.shape_speed = shape_speed

    @property
    def speeds(self) -> tuple[float, ...]:
        return (1.0, self.shape_speed, self.shape_speed)

    def initial_values(self) -> list[Tensor]:
        return [torch.tensor([math.log(size), 0.0, 0.0]) for size in self.sizes]

    def random_value(self, generator: Generator) -> Tensor:
        log_size = log_uniform(min(self.sizes), max(self.sizes), generator)
        log_ratio = log_uniform(1 / 4, 4, generator) / 2
        angle = uniform(-math.pi / 4, math.pi / 4, generator)
        return torch.stack([log_size, log_ratio, angle])

    def draw(self, n: int, generator: Generator) -> Tensor:
        return torch.rand(n, 2, generator=generator)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        return cutdiff(images, a, noise)

    def describe(self, a: Tensor) -> dict[str, float]:
        log_size, log_ratio, angle = a.tolist()
        aspect, angle_deg = fold_ellipse(log_ratio, angle)
        return {
            "area": visible_area(log_size),
            "size": math.exp(log_size),  # the paper's
            "aspect": aspect,
            "angle_deg": angle_deg,
        }
