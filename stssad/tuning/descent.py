"""Steps of `a`, and when to stop: what both tuners share.

Legend: a the augmentation's parameters, β their step size.
"""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from ..augment import Augmentation
from ..settings import AnySettings

# A shorter memory for squares than Adam's usual 0.999: gradients are large on the way from a small
# start and small around the optimum, and steps scaled by the former never come back from beyond it.
ADAM_BETAS = (0.9, 0.95)
Moments = tuple[Tensor, Tensor]  # running means of a's gradient and of its square


def cosine(t: float, total: float) -> float:
    """From 1 at t = 0 down to 0 at t = total."""
    return (1 + math.cos(math.pi * t / total)) / 2


def a_step_sizes(augmentation: Augmentation, a: Tensor, settings: AnySettings, t: int) -> Tensor:
    """β for each entry of `a`, on its cosine schedule; an augmentation may slow some entries."""
    speeds = getattr(augmentation, "speeds", None) or [1.0] * len(a)
    return settings.a_step_size * cosine(t, settings.max_iterations) * a.new_tensor(speeds)


def descend(
    a: Tensor, gradient: Tensor, adam: Moments, iteration: int, beta: Tensor
) -> tuple[Tensor, Moments]:
    """One Adam step on `a` (line 8), with a step size for each entry; counts from iteration 0."""
    b1, b2 = ADAM_BETAS
    mean = b1 * adam[0] + (1 - b1) * gradient
    square = b2 * adam[1] + (1 - b2) * gradient.square()
    t = iteration + 1
    direction = (mean / (1 - b1**t)) / ((square / (1 - b2**t)).sqrt() + 1e-8)
    return a - beta * direction, (mean, square)


def smoothed(losses: Sequence[float], n: int) -> float:
    """The average of the last n."""
    window = losses[-n:]
    return sum(window) / len(window)


def is_full(n_done: int, settings: AnySettings) -> bool:
    """Whether there are as many iterations as an average is taken over."""
    return n_done >= min(settings.smoothing, settings.max_iterations)


def is_over(n_done: int, best_iteration: int | None, settings: AnySettings) -> bool:
    """All iterations done, or no better average for `patience` of them (the paper's criterion)."""
    if n_done >= settings.max_iterations:
        return True
    return best_iteration is not None and n_done - 1 - best_iteration >= settings.patience


def random_index(n: int, size: int | None, generator: Generator) -> Tensor:
    """`size` different numbers below n in random order, or all of them."""
    return torch.randperm(n, generator=generator)[:size]


def in_turn(index: Tensor, n: int) -> Tensor:
    """n entries of an index, from its beginning again where it ends."""
    return index[torch.arange(n) % len(index)]


@torch.no_grad()
def clamped_share(augmentation: Augmentation, a: Tensor, sources: Tensor, noise: Tensor) -> float:
    """Share of pixels that the augmentation drives to 0 or 1, where `a` has no gradient."""
    augmented = augmentation(sources, a, noise)
    at_bound = (augmented <= 0) | (augmented >= 1)
    was_at_bound = (sources <= 0) | (sources >= 1)
    return float((at_bound & ~was_at_bound).float().mean())


def generator_from(state: Tensor) -> Generator:
    """A generator as it was when its state was kept."""
    generator = Generator()
    generator.set_state(state.cpu())
    return generator
