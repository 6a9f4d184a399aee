"""Algorithm 1: tune `a` and train θ in turn, from one initial `a`.

Legend: θ the detector's weights, α its step size; a the augmentation's parameters, β theirs;
L_trn, L_val the two losses. `TunerState` is all that the rest of a start depends on.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor
from torch.autograd import grad

from .augment import Augmentation
from .detector import Detector, FrozenEncoder, Tensors, as_floats
from .hypergradient import Hypergradient, TrainBatch, ValSample, hypergradient
from .settings import Settings
from .val_loss import ValLoss, mean_distance_loss

# A shorter memory for squares than Adam's usual 0.999: gradients are large on the way from a small
# start and small around the optimum, and steps scaled by the former never come back from beyond it.
ADAM_BETAS = (0.9, 0.95)


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
    """Everything that the rest of one start depends on."""

    theta: Tensors
    buffers: Tensors
    momentum: Tensors
    a: Tensor
    adam: tuple[Tensor, Tensor]  # running means of a's gradient and of its square
    generator: Generator
    n_updates: int = 0  # of θ
    warm_losses: list[float] = field(default_factory=list)  # L_trn, a mean for each epoch
    history: list[Record] = field(default_factory=list)
    best: Best | None = None


Progress = Callable[[TunerState], None]


def initial_state(
    detector: Detector, initial_a: Tensor, seed: int, is_frozen: bool = False
) -> TunerState:
    """Before any training; where there will be none, θ needs no momentum."""
    theta, buffers = detector.initial_state(seed)
    a = initial_a.detach().to(detector.device, torch.get_default_dtype())
    return TunerState(
        theta=theta,
        buffers=buffers,
        momentum={} if is_frozen else {name: torch.zeros_like(p) for name, p in theta.items()},
        a=a,
        adam=(torch.zeros_like(a), torch.zeros_like(a)),
        generator=torch.Generator().manual_seed(seed),
    )


def step_size(settings: Settings, n_train: int, n_updates: int) -> float:
    """α on its cosine schedule over all the θ updates that a start may make."""
    warm = settings.warm_start_epochs * math.ceil(n_train / settings.batch_size)
    total = warm + settings.max_iterations * settings.theta_updates
    return settings.theta_step_size * cosine(n_updates, total)


def cosine(t: int, total: int) -> float:
    """From 1 at t = 0 down to 0 at t = total."""
    return (1 + math.cos(math.pi * t / total)) / 2


def train_step(
    detector: Detector, state: TunerState, batch: TrainBatch, augmentation: Augmentation,
    settings: Settings, alpha: float,
) -> float:  # fmt: skip
    """One SGD update of θ on L_trn (line 3), in place of the old θ; returns L_trn before it."""
    theta = {name: p.detach().requires_grad_() for name, p in state.theta.items()}
    with torch.no_grad():
        augmented = augmentation(batch.sources, state.a, batch.noise)
    loss, state.buffers = detector.training_loss(theta, state.buffers, batch.normal, augmented)
    gradients = grad(loss, list(theta.values()))
    next_theta, next_momentum = {}, {}
    for (name, p), g in zip(state.theta.items(), gradients, strict=True):
        buffer = settings.momentum * state.momentum[name] + g + settings.weight_decay * p
        next_momentum[name], next_theta[name] = buffer, p - alpha * buffer
    state.theta, state.momentum = next_theta, next_momentum
    state.n_updates += 1
    return loss.item()


def draw_batch(
    train: Tensor, index: Tensor, augmentation: Augmentation, n_augmented: int,
    generator: Generator, device: torch.device,
) -> TrainBatch:  # fmt: skip
    """Normal pictures train[index], and augmented ones made of the same, in turn."""
    normal = as_floats(train[index], device)
    sources = normal[torch.arange(n_augmented, device=device) % len(index)]
    noise = augmentation.draw(n_augmented, generator).to(device, normal.dtype)
    return TrainBatch(normal, sources, noise)


def draw_train_batch(
    train: Tensor, index: Tensor, augmentation: Augmentation, settings: Settings,
    state: TunerState, detector: Detector,
) -> TrainBatch:  # fmt: skip
    """The mini-batch of L_trn, with γ augmented pictures for each normal one."""
    n_augmented = max(1, round(settings.augmented_ratio * len(index)))
    return draw_batch(train, index, augmentation, n_augmented, state.generator, detector.device)


def random_index(n: int, size: int | None, generator: Generator) -> Tensor:
    """`size` different numbers below n in random order, or all of them."""
    return torch.randperm(n, generator=generator)[:size]


def draw_sample(
    train: Tensor, pool: Tensor, augmentation: Augmentation, settings: Settings,
    generator: Generator, device: torch.device, embedded: tuple[Tensor, Tensor] | None = None,
) -> ValSample:  # fmt: skip
    """What L_val is computed on: fresh samples in every iteration.

    `embedded` are (Z_trn, Z_val) of all pictures, where they are known.
    """
    index = random_index(len(train), settings.val_train_samples, generator)
    n_augmented = settings.val_augmented_samples
    sources = train[index[torch.arange(n_augmented) % len(index)]]
    noise = augmentation.draw(n_augmented, generator).to(device)
    of_pool: Tensor | slice = slice(None)
    if settings.val_pool_samples is not None and settings.val_pool_samples < len(pool):
        of_pool = random_index(len(pool), settings.val_pool_samples, generator)
    known = None if embedded is None else (embedded[0][index], embedded[1][of_pool])
    return ValSample(train[index], sources, noise, pool[of_pool], known)


def descend(
    a: Tensor, gradient: Tensor, adam: tuple[Tensor, Tensor], iteration: int, beta: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One Adam step on `a` (line 8), with a step size for each entry; counts from iteration 0."""
    b1, b2 = ADAM_BETAS
    mean = b1 * adam[0] + (1 - b1) * gradient
    square = b2 * adam[1] + (1 - b2) * gradient.square()
    t = iteration + 1
    direction = (mean / (1 - b1**t)) / ((square / (1 - b2**t)).sqrt() + 1e-8)
    return a - beta * direction, (mean, square)


def a_step_sizes(augmentation: Augmentation, a: Tensor, settings: Settings, t: int) -> Tensor:
    """β for each entry of `a`, on its cosine schedule; an augmentation may slow some entries."""
    speeds = getattr(augmentation, "speeds", None) or [1.0] * len(a)
    return settings.a_step_size * cosine(t, settings.max_iterations) * a.new_tensor(speeds)


def warm_start(
    detector: Detector,
    augmentation: Augmentation,
    train: Tensor,
    state: TunerState,
    settings: Settings,
    progress: Progress | None = None,
) -> None:
    """Train θ at the initial `a`, in place: before that, L_val says nothing about `a`."""
    while len(state.warm_losses) < settings.warm_start_epochs:
        order = random_index(len(train), None, state.generator)
        losses = []
        for index in torch.split(order, settings.batch_size):
            batch = draw_train_batch(train, index, augmentation, settings, state, detector)
            alpha = step_size(settings, len(train), state.n_updates)
            losses.append(train_step(detector, state, batch, augmentation, settings, alpha))
        state.warm_losses.append(sum(losses) / len(losses))
        if progress is not None:
            progress(state)


def tune(
    detector: Detector,
    augmentation: Augmentation,
    train: Tensor,
    pool: Tensor,
    state: TunerState,
    settings: Settings,
    val_loss: ValLoss = mean_distance_loss,
    progress: Progress | None = None,
    embedded: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Algorithm 1 from state.a, in place, until L_trn + L_val has stopped falling.

    With no θ updates its line 3 is empty: only `a` is learned, and training and pool pictures are
    embedded once (`embedded`, if the caller has done so).
    """
    if settings.theta_updates == 0:
        frozen = detector.frozen(state.theta, state.buffers)
        embedded = embedded or (frozen.embed_all(train), frozen.embed_all(pool))
        if not state.history:
            take_better_mirror(
                frozen, augmentation, train, pool, state, settings, val_loss, embedded
            )
    while len(state.history) < settings.max_iterations and not has_settled(state, settings):
        t, a, began = len(state.history), state.a, time.perf_counter()
        theta, batch, alpha, train_loss = state.theta, None, 0.0, 0.0
        for _ in range(settings.theta_updates):  # line 3; only the last update is differentiated
            index = random_index(len(train), settings.batch_size, state.generator)
            batch = draw_train_batch(train, index, augmentation, settings, state, detector)
            alpha = step_size(settings, len(train), state.n_updates)
            theta = state.theta
            train_loss = train_step(detector, state, batch, augmentation, settings, alpha)
        trained = time.perf_counter() if batch else began
        sample = draw_sample(
            train, pool, augmentation, settings, state.generator, detector.device, embedded
        )
        gradient = hypergradient(  # lines 4 to 7, and the gradient of line 8 by Eq. 2
            detector, theta, state.theta, state.buffers, a, batch, sample, augmentation, val_loss,
            alpha, settings.hypergradient, settings.chunk_size,
        )  # fmt: skip
        beta = a_step_sizes(augmentation, a, settings, t)
        state.a, state.adam = descend(a, gradient.total, state.adam, t, beta)
        seconds = (trained - began, time.perf_counter() - trained)
        clamped = clamped_share(augmentation, a, batch or sample, detector.device)
        state.history.append(record(t, train_loss, gradient, a, augmentation, clamped, seconds))
        remember_best(state, a, settings)
        if progress is not None:
            progress(state)


@torch.no_grad()
def take_better_mirror(
    frozen: FrozenEncoder, augmentation: Augmentation, train: Tensor, pool: Tensor,
    state: TunerState, settings: Settings, val_loss: ValLoss, embedded: tuple[Tensor, Tensor],
) -> None:  # fmt: skip
    """Begin from the mirror image of `a`, such as bright for dark, if L_val is less there.

    No gradient leads from one to the other: where the opacity passes zero, the shift turns round
    at once, and J jumps from -J to J (docs/beyond-the-paper.md).
    """
    mirrored = getattr(augmentation, "mirrored", None)
    if mirrored is None:
        return
    device = frozen.device
    sample = draw_sample(train, pool, augmentation, settings, state.generator, device, embedded)
    assert sample.embedded is not None
    Z_trn, Z_val = sample.embedded

    def loss(a: Tensor) -> float:
        augmented = augmentation(as_floats(sample.sources, device), a, sample.noise)
        return float(val_loss(Z_trn, frozen.embed_all(augmented), Z_val))

    state.a = min(state.a, mirrored(state.a), key=loss)


def record(
    t: int, train_loss: float, gradient: Hypergradient, a: Tensor, augmentation: Augmentation,
    clamped: float, seconds: tuple[float, float],
) -> Record:  # fmt: skip
    return Record(
        iteration=t,
        train_loss=train_loss,
        val_loss=float(gradient.val_loss),
        a=a.tolist(),
        learned=augmentation.describe(a),
        direct_gradient=gradient.direct.tolist(),
        indirect_gradient=gradient.indirect.tolist(),
        clamped_share=clamped,
        theta_seconds=seconds[0],
        a_seconds=seconds[1],
    )


@torch.no_grad()
def clamped_share(
    augmentation: Augmentation, a: Tensor, drawn: TrainBatch | ValSample, device: torch.device
) -> float:
    """Share of pixels that the augmentation drives to 0 or 1, where `a` has no gradient."""
    sources = as_floats(drawn.sources, device)
    augmented = augmentation(sources, a, drawn.noise)
    at_bound = (augmented <= 0) | (augmented >= 1)
    was_at_bound = (sources <= 0) | (sources >= 1)
    return float((at_bound & ~was_at_bound).float().mean())


def remember_best(state: TunerState, a: Tensor, settings: Settings) -> None:
    """Keep the state whose L_trn + L_val, averaged over the last iterations, is least."""
    if len(state.history) < min(settings.smoothing, settings.max_iterations):
        return
    train_loss, val_loss = smoothed(state.history, settings.smoothing)
    loss = train_loss + val_loss
    if state.best is None or loss < state.best.loss:
        iteration = state.history[-1].iteration
        state.best = Best(iteration, loss, train_loss, state.theta, state.buffers, a)


def smoothed(history: list[Record], n: int) -> tuple[float, float]:
    """L_trn and L_val, averaged over the last n iterations."""
    window = history[-n:]
    train_loss = sum(r.train_loss for r in window) / len(window)
    return train_loss, sum(r.val_loss for r in window) / len(window)


def has_settled(state: TunerState, settings: Settings) -> bool:
    """No better average for `patience` iterations (the paper's stopping criterion)."""
    if state.best is None:
        return False
    return len(state.history) - 1 - state.best.iteration >= settings.patience
