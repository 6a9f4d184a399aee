"""Other light: what lamp and camera change between two shots of the same thing.

Not tuned, and no pseudo-anomaly: the detector should *not* see it.
"""

import math

import torch
from torch import Generator, Tensor

GAIN, GAMMA, OFFSET = (0.75, 1.3), (0.8, 1.25), (-0.05, 0.05)
RAMP = 0.25  # from one side of the image to the other, at most this much darker and brighter
N_DRAWS = 5


def draw_light(n: int, generator: Generator) -> Tensor:
    """The randomness of n images (n, 5), uniform in [0, 1)."""
    return torch.rand(n, N_DRAWS, generator=generator)


def relit(images: Tensor, noise: Tensor) -> Tensor:
    """Images (n, 3, m, m) in [0, 1] with another gain, gamma and offset, and lit from a side."""
    gain, gamma, offset, strength, turn = noise.to(images)[:, :, None, None, None].unbind(1)
    lit = images * between(GAIN, gain) * (1 + RAMP * strength * ramp(images.shape[-1], turn))
    return (lit.clamp(0, 1) ** between(GAMMA, gamma) + between(OFFSET, offset)).clamp(0, 1)


def between(bounds: tuple[float, float], share: Tensor) -> Tensor:
    return bounds[0] + (bounds[1] - bounds[0]) * share


def ramp(size: int, turn: Tensor) -> Tensor:
    """(n, 1, m, m), from -1 at one side to 1 at the other; `turn` (n, 1, 1, 1) is its direction."""
    at = torch.linspace(-1, 1, size, device=turn.device, dtype=turn.dtype)
    angle = 2 * math.pi * turn
    slope = at * torch.cos(angle) + at[:, None] * torch.sin(angle)
    return slope / (torch.cos(angle).abs() + torch.sin(angle).abs())
