"""One iteration of Algorithm 1 in several forms, on the same images, weights and draws.

ours:   the tuner's own: exact, finite_difference or first_order
naive:  the graph kept through the θ step and the whole of L_val, as the equations are printed
higher, torchopt: the same step written with those libraries

    python benchmarks/cases.py FORM N_POOL SIZE WIDTH [CHUNK]    runs one, for its memory
"""

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd import grad

from stssad import CutDiff, ResNet18, Settings
from stssad.encoders.detector import Detector
from stssad.settings import Mode
from stssad.tuning.hypergradient import hypergradient
from stssad.tuning.problem import (
    TrainBatch,
    TuningProblem,
    ValSample,
    draw_sample,
    draw_train_batch,
)
from stssad.tuning.tuner import TunerState, initial_state, train_step
from stssad.tuning.val_loss import mean_distance_loss

ALPHA = 0.03


@dataclass(frozen=True)
class Case:
    """Everything that an iteration needs."""

    problem: TuningProblem
    state: TunerState
    batch: TrainBatch
    sample: ValSample


def make_case(
    n_pool: int, size: int, width: int, n_train: int = 256, n_augmented: int = 256, chunk: int = 64
) -> Case:
    settings = Settings(
        image_size=size,
        width=width,
        theta_step_size=ALPHA,
        val_train_samples=n_train,
        val_augmented_samples=n_augmented,
        chunk_size=chunk,
    )
    generator = torch.Generator().manual_seed(0)
    train, pool = (
        torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)
        for n in (n_train, n_pool)
    )
    detector, augmentation = Detector(ResNet18(width), size), CutDiff()
    problem = TuningProblem(detector, augmentation, mean_distance_loss, train, pool, settings)
    state = initial_state(problem, augmentation.initial_values()[2], seed=0)
    batch = draw_train_batch(problem, torch.arange(settings.batch_size), state.generator)
    return Case(problem, state, batch, draw_sample(problem, state.generator))


def ours(case: Case, mode: Mode = "exact") -> Tensor:
    """A θ update and the hypergradient, as the tuner makes them."""
    problem = replace(case.problem, settings=replace(case.problem.settings, hypergradient=mode))
    state = replace(case.state)  # the step moves a copy on: α stays the first of its schedule
    step = train_step(problem, state, case.batch)
    return hypergradient(problem, step, state.a, case.sample).total


def embedded(case: Case, embed: Callable[[Tensor], Tensor], a: Tensor) -> list[Tensor]:
    """Z_trn, Z_aug, Z_val, each at once."""
    problem, sample = case.problem, case.sample
    augmented = problem.augment(sample.sources, a, sample.noise)
    sets = (problem.floats(sample.train), augmented, problem.floats(sample.pool))
    return [embed(x) for x in sets]


def naive(case: Case) -> Tensor:
    """θ' with its graph, L_val with its graph, one backward pass through everything."""
    s, state, detector = case.problem.settings, case.state, case.problem.detector
    a = state.a.clone().requires_grad_()
    theta = {k: p.detach().requires_grad_() for k, p in state.theta.items()}
    augmented = case.problem.augmentation(case.batch.sources, a, case.batch.noise)
    loss, buffers = detector.training_loss(theta, state.buffers, case.batch.normal, augmented)
    g = grad(loss, list(theta.values()), create_graph=True)
    moved = {
        k: p - ALPHA * (s.momentum * state.momentum[k] + gi + s.weight_decay * p)
        for (k, p), gi in zip(theta.items(), g, strict=True)
    }
    buffers = {k: b.detach() for k, b in buffers.items()}
    Z = embedded(case, lambda x: detector.embed(moved, buffers, x), a)
    return grad(mean_distance_loss(*Z), a)[0]


def module_of(case: Case) -> torch.nn.Module:
    network = copy.deepcopy(case.problem.detector.network)
    network.load_state_dict({**case.state.theta, **case.state.buffers})
    return network


def training_loss_of(case: Case, network: Callable[[Tensor], Tensor], a: Tensor) -> Tensor:
    augmented = case.problem.augmentation(case.batch.sources, a, case.batch.noise)
    n = len(case.batch.normal)
    targets = torch.cat([torch.zeros(n), torch.ones(len(augmented))]).long()
    logits = network(torch.cat([case.batch.normal, augmented]))
    return torch.nn.functional.cross_entropy(logits, targets)


def sgd_of(case: Case, network: torch.nn.Module) -> torch.optim.SGD:
    s = case.problem.settings
    return torch.optim.SGD(
        network.parameters(), lr=ALPHA, momentum=s.momentum, weight_decay=s.weight_decay
    )


def with_higher(case: Case) -> Tensor:
    import higher

    network, a = module_of(case).train(), case.state.a.clone().requires_grad_()
    with higher.innerloop_ctx(network, sgd_of(case, network)) as (functional, optimizer):
        optimizer.step(training_loss_of(case, functional, a))
        functional.eval()
        Z = embedded(case, lambda x: functional(x, only_embed=True), a)
        return grad(mean_distance_loss(*Z), a)[0]


def with_torchopt(case: Case) -> Tensor:
    import torchopt

    s = case.problem.settings
    network, a = module_of(case).train(), case.state.a.clone().requires_grad_()
    optimizer = torchopt.MetaSGD(
        network, lr=ALPHA, momentum=s.momentum, weight_decay=s.weight_decay
    )
    optimizer.step(training_loss_of(case, network, a))
    network.eval()
    Z = embedded(case, lambda x: network(x, only_embed=True), a)
    return grad(mean_distance_loss(*Z), a)[0]


FORMS: dict[str, Callable[[Case], Tensor]] = {
    "exact": ours,
    "first_order": lambda case: ours(case, "first_order"),
    "naive": naive,
    "higher": with_higher,
    "torchopt": with_torchopt,
}


if __name__ == "__main__":
    torch.set_num_threads(2)
    form, *numbers = sys.argv[1:]
    n_pool, size, width, *chunk = map(int, numbers)
    print(FORMS[form](make_case(n_pool, size, width, chunk=chunk[0] if chunk else 64)).tolist())
