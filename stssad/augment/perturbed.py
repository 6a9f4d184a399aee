"""An augmentation whose `a` is blurred by noise: what a detector is tuned on, not what is learned.

A detector that is trained at one `a` separates just that `a` best, so L_val has a maximum there
and its gradient is the sign of chance. Trained and validated at a + ε, it sees the neighbourhood of
`a`, and the gradient is that of L_val averaged over it. Self-tuning networks (MacKay et al., 2019)
perturb hyperparameters for the same reason.
"""

from itertools import pairwise

import torch
from torch import Generator, Tensor

from . import Augmentation

GROUP = 4  # images that share one ε: an augmentation takes one `a` for all of a batch


class Perturbed:
    """`augmentation` at a + ε, ε ~ N(0, scale²) times its speeds, another for every few images."""

    def __init__(self, augmentation: Augmentation, scale: float) -> None:
        self.augmentation, self.scale = augmentation, scale
        self.names = augmentation.names
        self.speeds = getattr(augmentation, "speeds", None) or (1.0,) * len(self.names)

    def initial_values(self) -> list[Tensor]:
        return self.augmentation.initial_values()

    def random_value(self, generator: Generator) -> Tensor:
        return self.augmentation.random_value(generator)

    def draw(self, n: int, generator: Generator) -> Tensor:
        """The augmentation's own noise, and ε of each image's group: half of them the negatives
        of the others, so that they are balanced around `a`."""
        own = self.augmentation.draw(n, generator)
        n_pairs = -(-n // (2 * GROUP))
        half = torch.randn(n_pairs, len(self.names), generator=generator)
        epsilon = torch.stack([half, -half], dim=1).flatten(0, 1).repeat_interleave(GROUP, dim=0)
        return torch.cat([own, epsilon[:n]], dim=1)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        k = len(self.names)
        own, epsilon = noise[:, :-k], noise[:, -k:]
        scale = self.scale * a.new_tensor(self.speeds)
        return torch.cat(
            [
                self.augmentation(images[g], a + scale * epsilon[g.start], own[g])
                for g in same_rows(epsilon)
            ]
        )

    def describe(self, a: Tensor) -> dict[str, float]:
        return self.augmentation.describe(a)


def same_rows(rows: Tensor) -> list[slice]:
    """Stretches of equal rows, wherever a batch was cut into chunks."""
    changes = (rows[1:] != rows[:-1]).any(dim=1).nonzero().flatten() + 1
    bounds = [0, *changes.tolist(), len(rows)]
    return [slice(i, j) for i, j in pairwise(bounds)]
