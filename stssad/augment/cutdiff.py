"""CutDiff, the paper's differentiable CutOut (Sec. 4.2.1, Algorithm 2).

Legend: n pictures of m x m pixels; g pixel positions, row first; mu patch centres; s size, r ratio;
a = (log_area, log_ratio, angle).

The paper leaves three things open, settled here (docs/paper-map.md):
- its "patch size" is an area fraction, so s = sqrt(area);
- its "ratio starts at zero" is log r = 0, since S holds s/r; the patch's aspect is r squared;
- L = R S is rotation times scale rather than the lower triangle itself; both give any ellipse.
"""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from .draws import log_uniform, uniform


def pixel_positions(m: int, like: Tensor) -> Tensor:
    """Centres of the pixels of an m x m picture in the unit square, row first: (m, m, 2)."""
    axis = (torch.arange(m, dtype=like.dtype, device=like.device) + 0.5) / m
    return torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)


def patch(a: Tensor, centers: Tensor, m: int) -> Tensor:
    """The soft patch p of Algorithm 2, line 5: (n, m, m), 1 at the centre, a Gaussian around."""
    log_area, log_ratio, angle = a.unbind()
    s, r = torch.exp(log_area / 2), torch.exp(log_ratio)
    offset = pixel_positions(m, centers)[None] - centers[:, None, None, :]  # g - mu: (n, m, m, 2)
    down, right = offset.unbind(-1)
    cos, sin = torch.cos(angle), torch.sin(angle)
    # (g-mu)^T (L L^T)^-1 (g-mu) = |S^-1 R^T (g-mu)|^2, with L = R S
    u = (cos * down + sin * right) * r / s
    v = (cos * right - sin * down) / (s * r)
    return torch.exp(-(u.square() + v.square()))


def cutdiff(images: Tensor, a: Tensor, centers: Tensor) -> Tensor:
    """Darken one soft patch in each picture: images (n, 3, m, m), a (3,), centers (n, 2)."""
    p = patch(a, centers, images.shape[-1])
    return (images - p[:, None]).clamp(0, 1)  # line 6


def fold_ellipse(log_ratio: float, angle: float) -> tuple[float, float]:
    """The one (aspect, degrees in (-45, 45]) among all that name the same ellipse."""
    quarter_turns = math.ceil(angle / (math.pi / 2) - 0.5)  # a quarter turn swaps the axes
    aspect = math.exp(2 * log_ratio * (-1) ** quarter_turns)
    return aspect, math.degrees(angle - quarter_turns * math.pi / 2)


class CutDiff:
    """A dark elliptic patch of learnable area, aspect and angle, at a random place."""

    names = ("log_area", "log_ratio", "angle")
    noun = "a dark patch"

    def __init__(
        self, areas: Sequence[float] = (0.0001, 0.001, 0.01, 0.1), shape_speed: float = 0.1
    ) -> None:
        """areas: where the starts begin, round and unturned; the paper's four by default.
        shape_speed: how fast ratio and angle move, against the area's 1.

        Stretching a small patch into a stripe makes it as visible as a larger one, and spreads
        Z_aug, which L_val's normalisation rewards; at equal speed a patch often ends as a stripe
        where a round one was planted.
        """
        self.areas = areas
        self.shape_speed = shape_speed

    @property
    def speeds(self) -> tuple[float, ...]:
        return (1.0, self.shape_speed, self.shape_speed)

    def initial_values(self) -> list[Tensor]:
        return [torch.tensor([math.log(area), 0.0, 0.0]) for area in self.areas]

    def random_value(self, generator: Generator) -> Tensor:
        log_area = log_uniform(0.0001, 0.1, generator)
        log_ratio = log_uniform(1 / 4, 4, generator) / 2
        angle = uniform(-math.pi / 4, math.pi / 4, generator)
        return torch.stack([log_area, log_ratio, angle])

    def draw(self, n: int, generator: Generator) -> Tensor:
        return torch.rand(n, 2, generator=generator)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        return cutdiff(images, a, noise)

    def describe(self, a: Tensor) -> dict[str, float]:
        log_area, log_ratio, angle = a.tolist()
        aspect, angle_deg = fold_ellipse(log_ratio, angle)
        return {"area": math.exp(log_area), "aspect": aspect, "angle_deg": angle_deg}
