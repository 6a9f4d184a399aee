"""The short loop: nothing but `a` moves, and its gradient is the numerical one."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from stssad import CutDiff, Patch, PretrainedSettings
from stssad.encoders.encoder import as_encoder, embed
from stssad.encoders.encoding import embed_all
from stssad.tuning.frozen_tuner import (
    FrozenProblem,
    FrozenState,
    draw_frozen_sample,
    initial_frozen_state,
    loss_gradient,
    take_better_mirror,
    tune_frozen,
)
from stssad.tuning.shift_alignment import shift_alignment
from stssad.tuning.val_loss import ValLoss, mean_distance_loss, mmd_loss

TINY = PretrainedSettings(
    image_size=16, max_iterations=5, val_train_samples=10, val_augmented_samples=7, smoothing=2
)


class Filters(nn.Module):
    """Fixed smooth filters, averaged."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.filters = nn.Parameter(torch.randn(6, 3, 5, 5, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.softplus(nn.functional.conv2d(x, self.filters)).mean((2, 3))


def problem(loss: ValLoss = shift_alignment, settings: PretrainedSettings = TINY) -> FrozenProblem:
    generator = torch.Generator().manual_seed(0)
    train, pool = (0.3 + 0.4 * torch.rand(n, 3, 16, 16, generator=generator) for n in (20, 12))
    pool[:6, :, 4:9, 4:9] += 0.3
    encoder = as_encoder(Filters(), trains=False).eval()
    Z_trn, Z_val = embed_all(encoder, train), embed_all(encoder, pool)
    return FrozenProblem(encoder, Patch(), loss, train, Z_trn, Z_val, settings)


def start(of: FrozenProblem, amplitude: float = 0.2) -> FrozenState:
    return initial_frozen_state(of, torch.tensor([math.log(0.05), 0.2, 0.1, amplitude]), 0)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("chunk_size", [3, 64])
@pytest.mark.parametrize("loss", [mean_distance_loss, mmd_loss, shift_alignment])
def test_the_gradient_is_that_of_the_whole_loss(loss: ValLoss, chunk_size: int) -> None:
    of = problem(loss, replace(TINY, chunk_size=chunk_size))
    sample = draw_frozen_sample(of, torch.Generator().manual_seed(1))
    a = start(of).a
    value, gradient = loss_gradient(of, a, sample)

    def whole(a: Tensor) -> Tensor:
        Z_aug = embed(of.encoder, of.augmentation(sample.sources, a, sample.noise))
        return loss(sample.Z_trn, Z_aug, sample.Z_val)

    assert float(value) == pytest.approx(float(whole(a).detach()), rel=1e-9)
    free = a.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(whole(free), free)
    torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-12)
    if loss is shift_alignment:  # and numerically; MMD's bandwidth is a constant, but moves
        for i in range(len(a)):
            step = torch.zeros_like(a)
            step[i] = 1e-5
            numerical = float((whole(a + step) - whole(a - step)).detach()) / 2e-5
            assert float(gradient[i]) == pytest.approx(numerical, rel=1e-3, abs=1e-6)


def test_only_a_moves_and_every_iteration_is_recorded() -> None:
    of = problem()
    weights = of.encoder.module.filters.clone()  # type: ignore[union-attr,operator]
    state = start(of)
    before = state.a.clone()
    tune_frozen(of, state)
    assert len(state.history) == TINY.max_iterations and not torch.equal(state.a, before)
    assert torch.equal(of.encoder.module.filters, weights)  # type: ignore[union-attr]
    for k, r in enumerate(state.history):
        assert r.iteration == k and len(r.gradient) == 4 and r.seconds > 0
        assert r.learned == pytest.approx(Patch().describe(torch.tensor(r.a)))
    losses = [r.val_loss for r in state.history]
    averages = [(x + y) / 2 for x, y in pairwise(losses)]
    assert state.best is not None and state.best.loss == pytest.approx(min(averages))


def test_it_begins_from_the_better_mirror_image() -> None:
    of = problem()
    state = start(of, amplitude=-0.2)  # the pool has become brighter
    take_better_mirror(of, state)
    assert state.a[3] == pytest.approx(0.2)
    unmirrored = replace(of, augmentation=CutDiff())
    state = initial_frozen_state(unmirrored, torch.tensor([math.log(0.05), 0.2, 0.1]), 0)
    take_better_mirror(unmirrored, state)  # has no mirror image
    assert state.a[0] == pytest.approx(math.log(0.05))
