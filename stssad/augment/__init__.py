"""Augmentations: functions that turn a normal image into a pseudo-anomaly, with parameters `a`.

Randomness is drawn outside (`draw`) and handed in as `noise`, so that an augmentation is a pure
function: its gradient in `a` can be checked, and a run can be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Augmentation(Protocol):
    """What the tuners ask of an augmentation. A new type is one new file beside this one.

    It may also have `speeds`, a number for each entry of `a` by which its steps are multiplied; a
    `noun` that says what it draws; and `mirrored(a)`, the `a` that does the opposite.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each entry of `a`, which is unconstrained: any real number is allowed."""

    def initial_values(self) -> list[Tensor]:
        """Where restarts begin: several `a`, each of shape (len(names),)."""

    def random_value(self, generator: Generator) -> Tensor:
        """One `a` drawn from the range that a user without a pool would draw from (RS, RD)."""

    def draw(self, n: int, generator: Generator) -> Tensor:
        """What differs between images, such as the position of a patch: (n, k), k may be 0."""

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        """Images (n, 3, m, m) in [0, 1] to augmented images; pure, differentiable in `a`."""

    def describe(self, a: Tensor) -> dict[str, float]:
        """`a` as a person would say it; equal for all `a` that do the same."""
