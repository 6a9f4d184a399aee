"""Eq. 3 in float64, against numerical derivatives and the naive form that keeps the graph."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from stssad import MLP, CutDiff, ResNet18, Rotation, Settings
from stssad.encoders.detector import Detector, Tensors
from stssad.settings import Mode
from stssad.tuning.hypergradient import Hypergradient, hypergradient
from stssad.tuning.problem import ThetaStep, TrainBatch, TuningProblem, ValSample
from stssad.tuning.val_loss import ValLoss, mean_distance_loss, mmd_loss

pytestmark = pytest.mark.usefixtures("float64")
ALPHA, MOMENTUM, DECAY = 0.03, 0.9, 3e-5
STARTS = {
    "CutDiff": (CutDiff(), [math.log(0.05), 0.3, 0.4]),
    "Rotation": (Rotation(), [0.7]),
}


@dataclass(frozen=True)
class Step:
    """One iteration of Algorithm 1, with its batch and draws held fixed."""

    problem: TuningProblem
    theta: Tensors
    buffers: Tensors
    momentum: Tensors
    a: Tensor
    batch: TrainBatch
    sample: ValSample

    @property
    def detector(self) -> Detector:
        return self.problem.detector

    def train(self, a: Tensor, keep_graph: bool = False) -> tuple[Tensors, Tensors]:
        """θ' and the buffers after the step, written out again: not the tuner's code."""
        theta = {k: p.detach().requires_grad_() for k, p in self.theta.items()}
        augmented = self.problem.augmentation(self.batch.sources, a, self.batch.noise)
        loss, buffers = self.detector.training_loss(
            theta, self.buffers, self.batch.normal, augmented
        )
        g = torch.autograd.grad(loss, list(theta.values()), create_graph=keep_graph)
        moved = {
            k: p - ALPHA * (MOMENTUM * self.momentum[k] + gi + DECAY * p)
            for (k, p), gi in zip(theta.items(), g, strict=True)
        }
        return moved, buffers

    def val_loss(
        self,
        theta: Tensors,
        buffers: Tensors,
        a: Tensor,
        loss: Callable[..., Tensor] = mean_distance_loss,
    ) -> Tensor:
        """L_val with everything embedded at once."""
        augmented = self.problem.augmentation(self.sample.sources, a, self.sample.noise)
        sets = (self.sample.train, augmented, self.sample.pool)
        return loss(*(self.detector.embed(theta, buffers, images) for images in sets))

    def gradient(
        self, mode: Mode = "exact", chunk_size: int = 4, loss: ValLoss = mean_distance_loss
    ) -> Hypergradient:
        settings = Settings(hypergradient=mode, chunk_size=chunk_size)
        problem = replace(self.problem, settings=settings, val_loss=loss)
        return hypergradient(problem, self.step(), self.a, self.sample)

    def step(self) -> ThetaStep:
        theta_next, buffers_next = self.train(self.a)
        return ThetaStep(self.theta, theta_next, buffers_next, self.batch, ALPHA, 0.0)


def make_step(name: str, encoder: torch.nn.Module | None = None) -> Step:
    augmentation, a = STARTS[name]
    generator = torch.Generator().manual_seed(0)
    detector = Detector(encoder or ResNet18(width=4), image_size=16)
    theta, buffers = detector.initial_state(seed=0)

    def images(n: int) -> Tensor:  # away from black and white, where the clamp has its kinks
        return 0.4 + 0.6 * torch.rand(n, 3, 16, 16, dtype=torch.float64, generator=generator)

    def noise(n: int) -> Tensor:
        return augmentation.draw(n, generator).double()

    momentum = {
        k: 0.01 * torch.randn(p.shape, dtype=torch.float64, generator=generator)
        for k, p in theta.items()
    }
    normal, train = images(6), images(10)
    batch, sample = (
        TrainBatch(normal, normal, noise(6)),
        ValSample(train, train, noise(10), images(7)),
    )
    problem = TuningProblem(
        detector, augmentation, mean_distance_loss, train, sample.pool, Settings()
    )
    return Step(problem, theta, buffers, momentum, torch.tensor(a), batch, sample)


def numerical_derivative(f: Callable[[Tensor], Tensor], a: Tensor, h: float = 1e-7) -> Tensor:
    """Central differences of fourth order, small enough to stay between kinks."""
    out = torch.zeros_like(a)
    for i in range(len(a)):
        e = torch.zeros_like(a)
        e[i] = h
        out[i] = (8 * (f(a + e) - f(a - e)) - (f(a + 2 * e) - f(a - 2 * e))) / (12 * h)
    return out


def relative_error(got: Tensor, wanted: Tensor) -> float:
    return ((got - wanted).norm() / wanted.norm()).item()


@pytest.mark.parametrize("name", STARTS)
def test_exact_equals_the_numerical_derivative_of_the_whole_step(name: str) -> None:
    step = make_step(name)
    _, buffers = step.train(step.a)  # the running statistics are constants in `a`

    def loss_after_step(a: Tensor) -> Tensor:
        theta, _ = step.train(a)
        return step.val_loss(theta, buffers, a).detach()

    wanted = numerical_derivative(loss_after_step, step.a)
    assert relative_error(step.gradient().total, wanted) < 1e-6


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("encoder", ["ResNet18", "MLP"])
def test_exact_equals_naive_autograd_that_keeps_the_graph(name: str, encoder: str) -> None:
    step = make_step(name, MLP(image_size=16, n_layers=3, width=8) if encoder == "MLP" else None)
    a = step.a.clone().requires_grad_()
    theta, buffers = step.train(a, keep_graph=True)
    loss = step.val_loss(theta, {k: b.detach() for k, b in buffers.items()}, a)
    (wanted,) = torch.autograd.grad(loss, a)
    got = step.gradient()
    assert relative_error(got.total, wanted) < 1e-9
    assert got.val_loss.item() == pytest.approx(loss.item(), rel=1e-12)


@pytest.mark.parametrize("name", STARTS)
def test_direct_part_is_the_first_order_gradient(name: str) -> None:
    step = make_step(name)
    theta, buffers = step.train(step.a)
    wanted = numerical_derivative(lambda a: step.val_loss(theta, buffers, a).detach(), step.a)
    assert relative_error(step.gradient("first_order").total, wanted) < 1e-6
    assert relative_error(step.gradient("exact").direct, wanted) < 1e-6


@pytest.mark.parametrize("name", STARTS)
def test_second_order_differs_from_first(name: str) -> None:
    exact, first = make_step(name).gradient("exact"), make_step(name).gradient("first_order")
    assert first.indirect.abs().max() == 0
    assert relative_error(exact.total, first.total) > 1e-3


@pytest.mark.parametrize("name", STARTS)
def test_finite_difference_comes_close_to_exact_on_a_smooth_network(name: str) -> None:
    """With ReLUs the two need not agree: the difference feels the kinks, the derivative doesn't."""
    step = make_step(name, MLP(image_size=16, n_layers=3, width=8))
    for part in (step.detector.network.encoder.layers, step.detector.network.head):
        for i, module in enumerate(part):
            if isinstance(module, torch.nn.ReLU):
                part[i] = torch.nn.Softplus()
    exact, difference = step.gradient("exact"), step.gradient("finite_difference")
    assert relative_error(difference.indirect, exact.indirect) < 0.02


@pytest.mark.parametrize("chunk_size", [1, 3, 100])
def test_chunk_size_changes_nothing(chunk_size: int) -> None:
    step = make_step("CutDiff")
    got, wanted = step.gradient(chunk_size=chunk_size), step.gradient(chunk_size=10)
    assert relative_error(got.total, wanted.total) < 1e-12


@pytest.mark.parametrize("mode", ["exact", "finite_difference", "first_order"])
def test_running_statistics_are_not_touched(mode: Mode) -> None:
    step = make_step("CutDiff")
    taken = step.step()
    before = {k: b.clone() for k, b in taken.buffers_next.items()}
    own = {k: b.clone() for k, b in step.detector.network.state_dict().items()}
    problem = replace(step.problem, settings=Settings(hypergradient=mode))
    hypergradient(problem, taken, step.a, step.sample)
    assert all(torch.equal(taken.buffers_next[k], before[k]) for k in before)
    assert all(torch.equal(step.detector.network.state_dict()[k], own[k]) for k in own)


def test_training_does_update_the_running_statistics_it_returns() -> None:
    step = make_step("CutDiff")
    _, buffers = step.train(step.a)
    moved = [k for k in buffers if not torch.equal(buffers[k], step.buffers[k])]
    assert len(moved) == len(buffers)


def test_any_loss_of_embeddings_can_be_tuned() -> None:
    step = make_step("CutDiff")
    a = step.a.clone().requires_grad_()
    theta, buffers = step.train(a, keep_graph=True)
    buffers = {k: b.detach() for k, b in buffers.items()}
    (wanted,) = torch.autograd.grad(step.val_loss(theta, buffers, a, mmd_loss), a)
    assert relative_error(step.gradient(loss=mmd_loss).total, wanted) < 1e-9


def test_more_augmented_than_normal_images_are_allowed() -> None:
    step = make_step("CutDiff")
    doubled = TrainBatch(
        step.batch.normal, step.batch.normal.repeat(2, 1, 1, 1), torch.rand(12, 2).double()
    )
    step = replace(step, batch=doubled)
    a = step.a.clone().requires_grad_()
    theta, buffers = step.train(a, keep_graph=True)
    (wanted,) = torch.autograd.grad(
        step.val_loss(theta, {k: b.detach() for k, b in buffers.items()}, a), a
    )
    assert relative_error(step.gradient().total, wanted) < 1e-9


def test_unknown_mode_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="hypergradient is 'second'; use exact, finite_difference"):
        make_step("CutDiff").gradient("second")  # type: ignore[arg-type]
