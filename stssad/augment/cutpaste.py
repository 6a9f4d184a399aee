"""CutPaste (Li et al., 2021): a rectangle copied to another position. For baselines only."""

import torch
from torch import Generator, Tensor

from .cutout import (
    describe_rectangle,
    half_sides,
    initial_rectangles,
    random_rectangle,
    rectangle,
)


def shifted(images: Tensor, shift: Tensor) -> Tensor:
    """Images moved down and right by whole pixels, each by its own shift (n, 2), wrapping."""
    n, _, m, _ = images.shape
    index = torch.arange(m, device=images.device)
    rows = (index[None] - shift[:, :1]) % m
    columns = (index[None] - shift[:, 1:]) % m
    image = torch.arange(n, device=images.device)[:, None, None]
    # advanced indices around a slice put the channel last
    return images[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class CutPaste:
    """A rectangle of the same image, taken from a random position and pasted at another."""

    names = ("log_area", "log_ratio")

    def initial_values(self) -> list[Tensor]:
        return initial_rectangles()

    def random_value(self, generator: Generator) -> Tensor:
        return random_rectangle(generator)

    def draw(self, n: int, generator: Generator) -> Tensor:
        return torch.rand(n, 4, generator=generator)

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        m = images.shape[-1]
        target = noise[:, :2]
        half = half_sides(a)
        source = half + noise[:, 2:] * (1 - 2 * half)  # the whole source lies in the image
        shift = ((target - source) * m).round().long()
        inside = rectangle(a, target, m)
        return torch.where(inside[:, None], shifted(images, shift), images)

    def describe(self, a: Tensor) -> dict[str, float]:
        return describe_rectangle(a)
