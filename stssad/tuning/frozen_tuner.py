"""Tune `a` for an encoder that stays as it is: nothing else is learned.

Legend: Z_trn, Z_aug, Z_val embeddings (n, d) of training, augmented and pool images; the first and
the last are computed once, so an iteration embeds only the augmented images.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor, nn
from torch.autograd import grad

from ..augment import Augmentation
from ..encoders.encoder import embed
from ..encoders.encoding import as_floats, device_of
from ..settings import PretrainedSettings
from .descent import (
    Moments,
    a_step_sizes,
    clamped_share,
    descend,
    in_turn,
    is_full,
    is_over,
    random_index,
    smoothed,
)
from .val_loss import ValLoss


@dataclass(frozen=True)
class FrozenProblem:
    """Encoder, augmentation, loss and data; `train` are images, uint8 or float."""

    encoder: nn.Module
    augmentation: Augmentation
    val_loss: ValLoss
    train: Tensor
    Z_trn: Tensor
    Z_val: Tensor
    settings: PretrainedSettings

    def embed_augmented(self, sources: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        images = as_floats(sources, device_of(self.encoder))
        return embed(self.encoder, self.augmentation(images, a, noise))


@dataclass(frozen=True)
class FrozenSample:
    """What the loss sees: embeddings of training and pool, images to be augmented, their noise."""

    Z_trn: Tensor
    Z_val: Tensor
    sources: Tensor
    noise: Tensor


@dataclass(frozen=True)
class FrozenRecord:
    """One iteration."""

    iteration: int
    val_loss: float  # at `a`
    a: list[float]
    learned: dict[str, float]  # `a` in words
    gradient: list[float]
    clamped_share: float  # of the augmented pixels, driven to 0 or 1: they carry no gradient
    seconds: float


@dataclass(frozen=True)
class FrozenBest:
    """The `a` with the least smoothed loss so far."""

    iteration: int
    loss: float
    a: Tensor


@dataclass
class FrozenState:
    """Everything that the rest of one restart depends on."""

    a: Tensor
    adam: Moments
    generator: Generator
    history: list[FrozenRecord] = field(default_factory=list)
    best: FrozenBest | None = None

    def is_over(self, settings: PretrainedSettings) -> bool:
        best_iteration = None if self.best is None else self.best.iteration
        return is_over(len(self.history), best_iteration, settings)


FrozenProgress = Callable[[FrozenState], None]


def initial_frozen_state(problem: FrozenProblem, initial_a: Tensor, seed: int) -> FrozenState:
    a = initial_a.detach().to(device_of(problem.encoder), torch.get_default_dtype())
    moments = (torch.zeros_like(a), torch.zeros_like(a))
    return FrozenState(a, moments, torch.Generator().manual_seed(seed))


def tune_frozen(
    problem: FrozenProblem, state: FrozenState, progress: FrozenProgress | None = None
) -> None:
    """From state.a, in place, until the loss has stopped falling."""
    settings = problem.settings
    if not state.history:
        take_better_mirror(problem, state)
    while not state.is_over(settings):
        t, a, began = len(state.history), state.a, time.perf_counter()
        sample = draw_frozen_sample(problem, state.generator)
        loss, gradient = loss_gradient(problem, a, sample)
        beta = a_step_sizes(problem.augmentation, a, settings, t)
        state.a, state.adam = descend(a, gradient, state.adam, t, beta)
        seconds = time.perf_counter() - began
        state.history.append(frozen_record(problem, t, a, loss, gradient, sample, seconds))
        remember_best_frozen(state, a, settings)
        if progress is not None:
            progress(state)


def draw_frozen_sample(problem: FrozenProblem, generator: Generator) -> FrozenSample:
    """Fresh samples in every iteration."""
    settings, n_pool = problem.settings, len(problem.Z_val)
    index = random_index(len(problem.train), settings.val_train_samples, generator)
    sources = problem.train[in_turn(index, settings.val_augmented_samples)]
    noise = problem.augmentation.draw(settings.val_augmented_samples, generator)
    of_pool: Tensor | slice = slice(None)
    if settings.val_pool_samples is not None and settings.val_pool_samples < n_pool:
        of_pool = random_index(n_pool, settings.val_pool_samples, generator)
    device = device_of(problem.encoder)
    return FrozenSample(
        problem.Z_trn[index].to(device),
        problem.Z_val[of_pool].to(device),
        sources,
        noise.to(device),
    )


def loss_gradient(problem: FrozenProblem, a: Tensor, sample: FrozenSample) -> tuple[Tensor, Tensor]:
    """The loss and its gradient in `a`, a chunk of augmented images at a time."""
    a = a.detach().requires_grad_()
    size = problem.settings.chunk_size

    def embedded(rows: slice) -> Tensor:
        return problem.embed_augmented(sample.sources[rows], a, sample.noise[rows])

    chunks = [slice(i, i + size) for i in range(0, len(sample.sources), size)]
    kept = embedded(chunks[0])  # with its graph: a sample in one chunk is embedded once
    with torch.no_grad():
        rest = [embedded(rows) for rows in chunks[1:]]
    Z_aug = torch.cat([kept.detach(), *rest]).requires_grad_()
    loss = problem.val_loss(sample.Z_trn, Z_aug, sample.Z_val)
    (dZ_aug,) = grad(loss, Z_aug)
    gradient = grad(kept, a, dZ_aug[chunks[0]])[0]
    for rows in chunks[1:]:
        gradient = gradient + grad(embedded(rows), a, dZ_aug[rows])[0]
    return loss.detach(), gradient.detach()


@torch.no_grad()
def losses_of_mirrors(
    problem: FrozenProblem, a: Tensor, generator: Generator
) -> list[tuple[float, Tensor]]:
    """`a` and, if there is one, its mirror image (such as bright for dark), with their losses.

    No gradient leads from one to the other: where the opacity passes zero, the shift turns round
    at once, and J jumps from -J to J (docs/beyond-the-paper.md).
    """
    sample = draw_frozen_sample(problem, generator)
    mirrored = getattr(problem.augmentation, "mirrored", None)
    both = [a] if mirrored is None else [a, mirrored(a)]

    def loss(each: Tensor) -> float:
        Z_aug = problem.embed_augmented(sample.sources, each, sample.noise)
        return float(problem.val_loss(sample.Z_trn, Z_aug, sample.Z_val))

    return [(loss(each), each) for each in both]


def take_better_mirror(problem: FrozenProblem, state: FrozenState) -> None:
    """Begin from the mirror image of `a` if the loss is less there."""
    if hasattr(problem.augmentation, "mirrored"):
        found = losses_of_mirrors(problem, state.a, state.generator)
        state.a = min(found, key=lambda pair: pair[0])[1]


def first_loss(problem: FrozenProblem, initial_a: Tensor, generator: Generator) -> float:
    """Of an initial value, or of its mirror image if that is less."""
    a = initial_a.detach().to(device_of(problem.encoder), torch.get_default_dtype())
    return min(loss for loss, _ in losses_of_mirrors(problem, a, generator))


def frozen_record(
    problem: FrozenProblem,
    t: int,
    a: Tensor,
    loss: Tensor,
    gradient: Tensor,
    sample: FrozenSample,
    seconds: float,
) -> FrozenRecord:
    sources = as_floats(sample.sources, a.device)
    return FrozenRecord(
        iteration=t,
        val_loss=float(loss),
        a=a.tolist(),
        learned=problem.augmentation.describe(a),
        gradient=gradient.tolist(),
        clamped_share=clamped_share(problem.augmentation, a, sources, sample.noise),
        seconds=seconds,
    )


def remember_best_frozen(state: FrozenState, a: Tensor, settings: PretrainedSettings) -> None:
    if not is_full(len(state.history), settings):
        return
    loss = smoothed([r.val_loss for r in state.history], settings.smoothing)
    if state.best is None or loss < state.best.loss:
        state.best = FrozenBest(state.history[-1].iteration, loss, a)
