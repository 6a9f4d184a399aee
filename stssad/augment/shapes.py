"""Soft shapes that several augmentation types share.

Legend: n images of m x m pixels; g pixel positions, row first; mu centres; r ratio; size = s², the
paper's "patch size" read as an area. A patch falls off as a Gaussian: where it is above 1/e of its
peak it covers pi s², which is reported as its `area`.
"""

import math

import torch
from torch import Tensor


def pixel_positions(m: int, like: Tensor) -> Tensor:
    """Centres of the pixels of an m x m image in the unit square, row first: (m, m, 2)."""
    axis = (torch.arange(m, dtype=like.dtype, device=like.device) + 0.5) / m
    return torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)


def ellipse(a: Tensor, centers: Tensor, m: int) -> Tensor:
    """The soft patch p of Algorithm 2, line 5: (n, m, m), 1 at the centre, a Gaussian around.

    a = (log_size, log_ratio, angle).
    """
    log_size, log_ratio, angle = a.unbind()
    s, r = torch.exp(log_size / 2), torch.exp(log_ratio)
    offset = pixel_positions(m, centers)[None] - centers[:, None, None, :]  # g - mu: (n, m, m, 2)
    down, right = offset.unbind(-1)
    cos, sin = torch.cos(angle), torch.sin(angle)
    # (g-mu)^T (L L^T)^-1 (g-mu) = |S^-1 R^T (g-mu)|^2, with L = R S
    u = (cos * down + sin * right) * r / s
    v = (cos * right - sin * down) / (s * r)
    return torch.exp(-(u.square() + v.square()))


def disc(log_size: Tensor, centers: Tensor, m: int) -> Tensor:
    """The same, round: log_size of shape (1,)."""
    return ellipse(torch.cat([log_size, torch.zeros_like(log_size).repeat(2)]), centers, m)


def stroke(log_length: Tensor, log_width: Tensor, noise: Tensor, m: int) -> Tensor:
    """A soft stroke (n, m, m), flat along, Gaussian across; noise (n, 3): centre, direction.

    Directions are in units of half a turn.
    """
    length, width = torch.exp(log_length) / 2, torch.exp(log_width) / 2
    centers, directions = noise[:, :2], math.pi * noise[:, 2]
    down, right = (pixel_positions(m, centers)[None] - centers[:, None, None, :]).unbind(-1)
    cos, sin = torch.cos(directions)[:, None, None], torch.sin(directions)[:, None, None]
    along, across = cos * down + sin * right, cos * right - sin * down
    return torch.exp(-((along / length) ** 4) - (across / width) ** 2)


def visible_area(log_size: float) -> float:
    """The share of the image that a soft patch visibly changes: above 1/e of its peak."""
    return min(1.0, math.pi * math.exp(log_size))


def fold_ellipse(log_ratio: float, angle: float) -> tuple[float, float]:
    """The one (aspect, degrees in (-45, 45]) among all that name the same ellipse."""
    quarter_turns = math.ceil(angle / (math.pi / 2) - 0.5)  # a quarter turn swaps the axes
    aspect = math.exp(2 * log_ratio * (-1) ** quarter_turns)
    return aspect, math.degrees(angle - quarter_turns * math.pi / 2)
