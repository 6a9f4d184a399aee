"""Algorithm 1: tune `a` and train θ in turn, from one initial `a`.

Legend: θ the detector's weights, α its step size; a the augmentation's parameters, β theirs;
L_trn, L_val the two losses. `TunerState` is all that the rest of a restart depends on.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor
from torch.autograd import grad

from ..encoders.detector import Tensors
from ..settings import Settings
from .descent import (
    Moments,
    a_step_sizes,
    clamped_share,
    cosine,
    descend,
    is_full,
    is_over,
    random_index,
    smoothed,
)
from .hypergradient import Hypergradient, hypergradient
from .problem import ThetaStep, TrainBatch, TuningProblem, draw_sample, draw_train_batch


@dataclass(frozen=True)
class Record:
    """One iteration of Algorithm 1."""

    iteration: int
    train_loss: float  # L_trn of the last θ update, at `a`
    val_loss: float  # L_val after it, at `a`
    a: list[float]
    learned: dict[str, float]  # `a` in words
    direct_gradient: list[float]
    indirect_gradient: list[float]  # through the training step
    clamped_share: float  # of the augmented pixels, driven to 0 or 1: they carry no gradient
    theta_seconds: float
    a_seconds: float


@dataclass(frozen=True)
class Best:
    """The state with the least smoothed L_trn + L_val so far."""

    iteration: int
    loss: float
    train_loss: float  # smoothed
    theta: Tensors
    buffers: Tensors
    a: Tensor


@dataclass
class TunerState:
    """Everything that the rest of one restart depends on."""

    theta: Tensors
    buffers: Tensors
    momentum: Tensors
    a: Tensor
    adam: Moments
    generator: Generator
    n_updates: int = 0  # of θ
    warm_losses: list[float] = field(default_factory=list)  # L_trn, a mean for each epoch
    history: list[Record] = field(default_factory=list)
    best: Best | None = None
    final_losses: list[float] = field(default_factory=list)  # L_trn at the learned `a`

    def is_over(self, settings: Settings) -> bool:
        best_iteration = None if self.best is None else self.best.iteration
        return is_over(len(self.history), best_iteration, settings)


Progress = Callable[[TunerState], None]


def initial_state(problem: TuningProblem, initial_a: Tensor, seed: int) -> TunerState:
    """Before any training."""
    theta, buffers = problem.detector.initial_state(seed)
    a = initial_a.detach().to(problem.detector.device, torch.get_default_dtype())
    return TunerState(
        theta=theta,
        buffers=buffers,
        momentum={name: torch.zeros_like(p) for name, p in theta.items()},
        a=a,
        adam=(torch.zeros_like(a), torch.zeros_like(a)),
        generator=torch.Generator().manual_seed(seed),
    )


def most_updates(settings: Settings, n_train: int) -> int:
    """All the θ updates that a restart may make."""
    warm = settings.warm_start_epochs * math.ceil(n_train / settings.batch_size)
    return warm + settings.max_iterations * settings.theta_updates + settings.final_updates


def step_size(settings: Settings, n_train: int, n_updates: int) -> float:
    """α: constant, then along a cosine to zero over the last share of the updates."""
    total = most_updates(settings, n_train)
    falling = settings.theta_decay * total
    return settings.theta_step_size * cosine(max(0.0, n_updates - (total - falling)), falling)


def train_step(problem: TuningProblem, state: TunerState, batch: TrainBatch) -> ThetaStep:
    """One SGD update of θ on L_trn (line 3), in place of the old θ."""
    settings = problem.settings
    alpha = step_size(settings, len(problem.train), state.n_updates)
    theta = {name: p.detach().requires_grad_() for name, p in state.theta.items()}
    with torch.no_grad():
        augmented = problem.augmentation(batch.sources, state.a, batch.noise)
    loss, buffers = problem.detector.training_loss(theta, state.buffers, batch.normal, augmented)
    gradients = grad(loss, list(theta.values()))
    next_theta, next_momentum = {}, {}
    for (name, p), g in zip(state.theta.items(), gradients, strict=True):
        buffer = settings.momentum * state.momentum[name] + g + settings.weight_decay * p
        next_momentum[name], next_theta[name] = buffer, p - alpha * buffer
    step = ThetaStep(state.theta, next_theta, buffers, batch, alpha, loss.item())
    state.theta, state.momentum, state.buffers = next_theta, next_momentum, buffers
    state.n_updates += 1
    return step


def warm_start(problem: TuningProblem, state: TunerState, progress: Progress | None = None) -> None:
    """Train θ at the initial `a`, in place: before that, L_val says nothing about `a`."""
    settings = problem.settings
    while len(state.warm_losses) < settings.warm_start_epochs:
        losses = train_epoch(problem, state)
        state.warm_losses.append(sum(losses) / len(losses))
        if progress is not None:
            progress(state)


def train_epoch(problem: TuningProblem, state: TunerState, most: int | None = None) -> list[float]:
    """Updates of θ on all training images in random order, or on so many batches; their L_trn."""
    order = random_index(len(problem.train), None, state.generator)
    losses = []
    for index in torch.split(order, problem.settings.batch_size)[:most]:
        batch = draw_train_batch(problem, index, state.generator)
        losses.append(train_step(problem, state, batch).loss)
    return losses


def tune(problem: TuningProblem, state: TunerState, progress: Progress | None = None) -> None:
    """Algorithm 1 from state.a, in place, until L_trn + L_val has stopped falling."""
    settings = problem.settings
    while not state.is_over(settings):
        t, a, began = len(state.history), state.a, time.perf_counter()
        for _ in range(settings.theta_updates):  # line 3; only the last update is differentiated
            step = train_step(problem, state, random_batch(problem, state.generator))
        trained = time.perf_counter()
        sample = draw_sample(problem, state.generator)
        gradient = hypergradient(problem, step, a, sample)  # lines 4 to 7, and Eq. 3
        beta = a_step_sizes(problem.augmentation, a, settings, t)
        state.a, state.adam = descend(a, gradient.total, state.adam, t, beta)  # line 8
        seconds = (trained - began, time.perf_counter() - trained)
        state.history.append(record(problem, t, step, gradient, a, seconds))
        remember_best(state, a, settings)
        if progress is not None:
            progress(state)


def random_batch(problem: TuningProblem, generator: Generator) -> TrainBatch:
    index = random_index(len(problem.train), problem.settings.batch_size, generator)
    return draw_train_batch(problem, index, generator)


def train_on(problem: TuningProblem, state: TunerState, progress: Progress | None = None) -> None:
    """Train θ at the learned `a`, in place: the stopping rule ends the updates of `a`, not of θ."""
    settings, losses = problem.settings, state.final_losses
    if not losses:
        settle(state, settings)
        # α falls to zero here, also where tuning stopped early.
        state.n_updates = most_updates(settings, len(problem.train)) - settings.final_updates
    while len(losses) < settings.final_updates:
        losses.append(train_step(problem, state, random_batch(problem, state.generator)).loss)
        is_round = len(losses) % 10 == 0 or len(losses) == settings.final_updates
        if progress is not None and is_round:
            progress(state)


def settle(state: TunerState, settings: Settings) -> None:
    """Take up the state that tuning ends with, in place."""
    if settings.end_state == "best":
        assert state.best is not None, "tune keeps a best state"
        state.theta, state.buffers, state.a = state.best.theta, state.best.buffers, state.best.a
        state.momentum = {name: torch.zeros_like(p) for name, p in state.theta.items()}


def record(
    problem: TuningProblem,
    t: int,
    step: ThetaStep,
    gradient: Hypergradient,
    a: Tensor,
    seconds: tuple[float, float],
) -> Record:
    return Record(
        iteration=t,
        train_loss=step.loss,
        val_loss=float(gradient.val_loss),
        a=a.tolist(),
        learned=problem.augmentation.describe(a),
        direct_gradient=gradient.direct.tolist(),
        indirect_gradient=gradient.indirect.tolist(),
        clamped_share=clamped_share(problem.augmentation, a, step.batch.sources, step.batch.noise),
        theta_seconds=seconds[0],
        a_seconds=seconds[1],
    )


def remember_best(state: TunerState, a: Tensor, settings: Settings) -> None:
    """Keep the state whose L_trn + L_val, averaged over the last iterations, is least."""
    if not is_full(len(state.history), settings):
        return
    train_loss = smoothed([r.train_loss for r in state.history], settings.smoothing)
    loss = train_loss + smoothed([r.val_loss for r in state.history], settings.smoothing)
    if state.best is None or loss < state.best.loss:
        iteration = state.history[-1].iteration
        state.best = Best(iteration, loss, train_loss, state.theta, state.buffers, a)
