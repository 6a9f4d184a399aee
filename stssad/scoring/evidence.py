"""Does the pool show the kind of anomaly that the best augmentation imitates, or is it chance?

An augmentation that was tuned to a pool aligns with that pool whatever it holds. So normal images
and pool are halved: each half chooses a restart and tunes it again, and the other half tests what
came of it.

Legend: w whitened embeddings; u a direction of unit length; z a standard score.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_Z = 3.0
Halves = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Evidence:
    """J of the chosen augmentation, and z: by how many standard deviations the pool has moved.

    `tested` are the augmentation types that the two halves chose; most often the chosen one, twice.
    """

    alignment: float
    z: float
    tested: tuple[str, str] = ("", "")

    @property
    def fits(self) -> bool:
        return self.z >= LEAST_Z


def halves(n: int, seed: int) -> Halves:
    """Two halves of n images, at random, each in order."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[: n // 2].sort().values, order[n // 2 :].sort().values


def standard_score(normal: Tensor, testing: Tensor, shift: Tensor) -> float:
    """z: how far images have moved along a shift, against what normal images would by chance.

    normal (n, d): whitened images that the whitening hasn't seen; testing (m, d) whitened
    likewise; the shift (d,) must not have been chosen or tuned on either.
    """
    u = shift / torch.linalg.vector_norm(shift).clamp_min(torch.finfo(shift.dtype).tiny)
    variance = (normal @ u).var() * (1 / len(testing) + 1 / len(normal))
    return float((testing.mean(dim=0) - normal.mean(dim=0)) @ u / variance.sqrt())


def evidence_score(normal: Halves, pool: Halves, shifts: Halves) -> float:
    """z of both halves, of normal images and pool, each tested with the other's learned shift.

    The normal images are halved as well: a shift is learned *from* them too, and the chance by
    which their mean is off would otherwise count on both sides.
    """
    found = [
        standard_score(normal[1], pool[1], shifts[0]),
        standard_score(normal[0], pool[0], shifts[1]),
    ]
    return (found[0] + found[1]) / 2**0.5
