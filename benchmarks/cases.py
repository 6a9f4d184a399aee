"""One iteration of Algorithm 1 in several forms, on the same pictures, weights and draws.

ours:   the tuner's own: exact, finite_difference or first_order
naive:  the graph kept through the θ step and the whole of L_val, as the equations are printed
higher, torchopt: the same step written with those libraries

    python benchmarks/cases.py FORM N_POOL SIZE WIDTH [CHUNK]    runs one, for its memory
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import grad

from stssad import CutDiff, ResNet18, Settings
from stssad.detector import Detector, as_floats
from stssad.hypergradient import TrainBatch, ValSample, hypergradient
from stssad.settings import Mode
from stssad.tuner import TunerState, draw_sample, draw_train_batch, initial_state, train_step
from stssad.val_loss import mean_distance_loss

ALPHA = 0.03


@dataclass(frozen=True)
class Case:
    """Everything that an iteration needs."""

    detector: Detector
    state: TunerState
    settings: Settings
    batch: TrainBatch
    sample: ValSample


def make_case(
    n_pool: int, size: int, width: int, n_train: int = 256, n_augmented: int = 256, chunk: int = 64
) -> Case:
    settings = Settings(
        image_size=size, width=width, val_train_samples=n_train, val_augmented_samples=n_augmented,
        chunk_size=chunk,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    train, pool = (
        torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)
        for n in (n_train, n_pool)
    )
    detector = Detector(ResNet18(width), size)
    state = initial_state(detector, CutDiff().initial_values()[2], seed=0)
    index = torch.arange(settings.batch_size)
    batch = draw_train_batch(train, index, CutDiff(), settings, state, detector)
    sample = draw_sample(train, pool, CutDiff(), settings, state.generator, detector.device)
    return Case(detector, state, settings, batch, sample)


def ours(case: Case, mode: Mode = "exact") -> Tensor:
    """A θ update and the hypergradient, as the tuner makes them; the state moves on."""
    theta, state = case.state.theta, case.state
    train_step(case.detector, state, case.batch, CutDiff(), case.settings, ALPHA)
    return hypergradient(
        case.detector, theta, state.theta, state.buffers, state.a, case.batch,
        case.sample, CutDiff(), mean_distance_loss, ALPHA, mode, case.settings.chunk_size,
    ).total  # fmt: skip


def embedded(case: Case, embed: Callable[[Tensor], Tensor], a: Tensor) -> list[Tensor]:
    """Z_trn, Z_aug, Z_val, each at once."""
    device = case.detector.device
    train, sources, pool = (
        as_floats(x, device) for x in (case.sample.train, case.sample.sources, case.sample.pool)
    )
    return [embed(x) for x in (train, CutDiff()(sources, a, case.sample.noise), pool)]


def naive(case: Case) -> Tensor:
    """θ' with its graph, L_val with its graph, one backward pass through everything."""
    s, state, detector = case.settings, case.state, case.detector
    a = state.a.clone().requires_grad_()
    theta = {k: p.detach().requires_grad_() for k, p in state.theta.items()}
    augmented = CutDiff()(case.batch.sources, a, case.batch.noise)
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
    network = Detector(ResNet18(case.settings.width), case.settings.image_size).network
    network.load_state_dict({**case.state.theta, **case.state.buffers})
    return network


def training_loss_of(case: Case, network: Callable[[Tensor], Tensor], a: Tensor) -> Tensor:
    augmented = CutDiff()(case.batch.sources, a, case.batch.noise)
    n = len(case.batch.normal)
    targets = torch.cat([torch.zeros(n), torch.ones(len(augmented))]).long()
    logits = network(torch.cat([case.batch.normal, augmented]))
    return torch.nn.functional.cross_entropy(logits, targets)


def sgd_of(case: Case, network: torch.nn.Module) -> torch.optim.SGD:
    s = case.settings
    return torch.optim.SGD(
        network.parameters(), lr=ALPHA, momentum=s.momentum, weight_decay=s.weight_decay
    )


def with_higher(case: Case) -> Tensor:
    import higher

    network, a = module_of(case).train(), case.state.a.clone().requires_grad_()
    with higher.innerloop_ctx(network, sgd_of(case, network)) as (functional, optimizer):
        optimizer.step(training_loss_of(case, functional, a))
        functional.eval()
        Z = embedded(case, lambda x: functional(x, embed=True), a)
        return grad(mean_distance_loss(*Z), a)[0]


def with_torchopt(case: Case) -> Tensor:
    import torchopt

    s = case.settings
    network, a = module_of(case).train(), case.state.a.clone().requires_grad_()
    optimizer = torchopt.MetaSGD(
        network, lr=ALPHA, momentum=s.momentum, weight_decay=s.weight_decay
    )
    optimizer.step(training_loss_of(case, network, a))
    network.eval()
    Z = embedded(case, lambda x: network(x, embed=True), a)
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
