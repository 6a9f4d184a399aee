"""The tuner's parts, and Algorithm 1 on a small problem."""

import math
from dataclasses import fields, replace
from multiprocessing.connection import Client

import pytest
import torch

from stssad.augment import CutDiff, Rotation
from stssad.detector import Detector
from stssad.encoders import ResNet18
from stssad.settings import Settings
from stssad.starts import _mailbox
from stssad.tuner import (
    ADAM_BETAS,
    Best,
    Record,
    TunerState,
    a_step_sizes,
    clamped_share,
    descend,
    draw_sample,
    draw_train_batch,
    has_settled,
    initial_state,
    remember_best,
    step_size,
    train_step,
    tune,
    warm_start,
)

TINY = Settings(
    image_size=32, width=4, batch_size=8, warm_start_epochs=2, max_iterations=4,
    val_train_samples=10, val_augmented_samples=6, val_pool_samples=5, smoothing=2, patience=50,
)  # fmt: skip


def detector() -> Detector:
    return Detector(ResNet18(width=4), image_size=32)


def pictures(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 3, 32, 32, generator=generator) * 0.5 + 0.3


def start(net: Detector, seed: int = 0) -> TunerState:
    return initial_state(net, torch.tensor([math.log(0.05), 0.2, 0.1]), seed)


def run(settings: Settings = TINY, seed: int = 0) -> TunerState:
    net = detector()
    state = start(net, seed)
    warm_start(net, CutDiff(), pictures(20), state, settings)
    tune(net, CutDiff(), pictures(20), pictures(12, seed=1), state, settings)
    return state


def test_train_step_equals_torchs_sgd() -> None:
    net, settings = detector(), replace(TINY, weight_decay=0.01)
    state = start(net)
    module = detector().network
    module.load_state_dict({**state.theta, **state.buffers})
    sgd = torch.optim.SGD(module.parameters(), lr=0.02, momentum=0.9, weight_decay=0.01)
    for k in range(3):
        index = torch.arange(8) + k
        batch = draw_train_batch(pictures(20), index, CutDiff(), settings, state, net)
        augmented = CutDiff()(batch.sources, state.a, batch.noise)
        logits = module.train()(torch.cat([batch.normal, augmented]))
        targets = torch.tensor([0] * 8 + [1] * 8)
        loss = torch.nn.functional.cross_entropy(logits, targets)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        ours = train_step(net, state, batch, CutDiff(), settings, alpha=0.02)
        assert ours == pytest.approx(loss.item(), rel=1e-4)
    for name, wanted in module.state_dict().items():
        got = {**state.theta, **state.buffers}[name]
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)


def test_descend_equals_torchs_adam() -> None:
    a = torch.tensor([1.0, -2.0, 0.5])
    parameter = a.clone().requires_grad_()
    adam, moments = (
        torch.optim.Adam([parameter], lr=0.1, betas=ADAM_BETAS),
        (torch.zeros(3), torch.zeros(3)),
    )
    for t in range(5):
        gradient = torch.tensor([0.3, -1.0, 2.0]) * (t + 1)
        parameter.grad = gradient.clone()
        adam.step()
        a, moments = descend(a, gradient, moments, t, torch.full((3,), 0.1))
    torch.testing.assert_close(a, parameter.detach())


def test_an_augmentation_may_slow_its_entries_down() -> None:
    settings = replace(TINY, a_step_size=0.2, max_iterations=10)
    slowed = a_step_sizes(CutDiff(shape_speed=0.5), torch.zeros(3), settings, t=0)
    torch.testing.assert_close(slowed, torch.tensor([0.2, 0.1, 0.1]))
    halfway = a_step_sizes(Rotation(), torch.zeros(1), settings, t=5)
    torch.testing.assert_close(halfway, torch.tensor([0.1]))


def test_step_size_falls_from_alpha_to_zero_along_a_cosine() -> None:
    n_updates = TINY.warm_start_epochs * 3 + TINY.max_iterations  # 20 pictures are 3 batches of 8
    sizes = [step_size(TINY, 20, k) for k in range(n_updates + 1)]
    assert sizes[0] == TINY.theta_step_size and sizes[-1] == pytest.approx(0, abs=1e-12)
    assert sizes[n_updates // 2] == pytest.approx(TINY.theta_step_size / 2)
    assert sizes == sorted(sizes, reverse=True)


def test_state_repeats_under_a_seed_and_differs_under_another() -> None:
    first, same, other = run(), run(), run(seed=1)
    assert all(torch.equal(first.theta[k], same.theta[k]) for k in first.theta)
    assert torch.equal(first.a, same.a) and not torch.equal(first.a, other.a)


def test_history_has_a_full_record_for_each_iteration() -> None:
    state = run()
    assert [r.iteration for r in state.history] == [0, 1, 2, 3]
    assert len(state.warm_losses) == TINY.warm_start_epochs
    assert state.history[0].a == pytest.approx([math.log(0.05), 0.2, 0.1])
    for r in state.history:
        assert r.learned == pytest.approx(CutDiff().describe(torch.tensor(r.a)))
        assert len(r.direct_gradient) == len(r.indirect_gradient) == 3
        assert 0 < r.clamped_share < 1
        assert r.theta_seconds > 0 and r.a_seconds > 0
        assert r.train_loss > 0 and r.val_loss > 0


def test_several_theta_updates_are_made_for_each_update_of_a() -> None:
    state = run(replace(TINY, theta_updates=3))
    assert state.n_updates == 2 * 3 + 4 * 3 and len(state.history) == 4


def test_gamma_sets_the_number_of_augmented_pictures() -> None:
    net = detector()
    state, index = start(net), torch.arange(8)
    for gamma, n in ((0.5, 4), (1.0, 8), (2.0, 16)):
        settings = replace(TINY, augmented_ratio=gamma)
        batch = draw_train_batch(pictures(20), index, CutDiff(), settings, state, net)
        assert len(batch.normal) == 8 and len(batch.sources) == len(batch.noise) == n
        assert torch.equal(batch.sources[: min(n, 8)], batch.normal[: min(n, 8)])


def test_sample_sizes_of_the_validation_loss_are_as_set_or_all_there_is() -> None:
    net = detector()
    generator = torch.Generator().manual_seed(0)
    sample = draw_sample(pictures(20), pictures(12), CutDiff(), TINY, generator, net.device)
    assert [len(x) for x in (sample.train, sample.sources, sample.pool)] == [10, 6, 5]
    everything = replace(TINY, val_train_samples=500, val_pool_samples=None)
    sample = draw_sample(pictures(20), pictures(12), CutDiff(), everything, generator, net.device)
    assert [len(x) for x in (sample.train, sample.sources, sample.pool)] == [20, 6, 12]
    assert len(torch.unique(sample.train, dim=0)) == 20  # without repetition


def test_clamped_share_counts_the_pixels_driven_to_black() -> None:
    state, net = start(detector()), detector()
    batch = draw_train_batch(pictures(20), torch.arange(8), CutDiff(), TINY, state, net)
    augmented = CutDiff()(batch.sources, state.a, batch.noise)
    share = clamped_share(CutDiff(), state.a, batch, net.device)
    assert share == pytest.approx((augmented == 0).float().mean().item()) and share > 0


def losses(values: list[float]) -> list[Record]:
    return [Record(i, v / 2, v / 2, [], {}, [], [], 0, 0, 0) for i, v in enumerate(values)]


def replay(values: list[float], settings: Settings) -> tuple[Best | None, int]:
    """The best state, and after how many iterations the stop rule ends, for given losses."""
    state = start(detector())
    for r in losses(values):
        if has_settled(state, settings):
            break
        state.history.append(r)
        remember_best(state, torch.tensor([float(r.iteration)]), settings)
    return state.best, len(state.history)


def test_best_state_is_that_of_the_least_smoothed_sum_of_losses() -> None:
    settings = replace(TINY, smoothing=2, max_iterations=100, patience=50)
    best, _ = replay([5, 4, 0, 4, 2, 1, 1, 4], settings)  # the single 0 is an outlier
    assert best is not None and best.iteration == 6 and best.loss == pytest.approx(1)
    assert best.a.item() == 6


def test_tuning_stops_when_the_loss_has_not_fallen_for_patience_iterations() -> None:
    settings = replace(TINY, smoothing=1, max_iterations=100, patience=3)
    best, n = replay([3, 2, 1, 2, 2, 2, 2, 2, 2], settings)
    assert best is not None and best.iteration == 2 and n == 6


def test_presets_are_the_appendix() -> None:
    mvtec, svhn = Settings.paper_mvtec(), Settings.paper_svhn()
    names = ("image_size", "batch_size", "warm_start_epochs", "theta_updates", "max_iterations")
    assert [getattr(mvtec, n) for n in names] == [256, 32, 20, 1, 500]
    assert [getattr(svhn, n) for n in names] == [32, 256, 40, 5, 100]
    for paper in (mvtec, svhn):
        assert (paper.theta_step_size, paper.momentum, paper.weight_decay) == (0.03, 0.9, 3e-5)
        assert (paper.val_train_samples, paper.val_augmented_samples) == (256, 256)
        assert paper.augmented_ratio == 1 and paper.width == 64
        assert paper.val_pool_samples is None
    assert Settings.quick(width=8).width == 8


@pytest.mark.parametrize(
    "name", [f.name for f in fields(Settings) if f.name not in ("hypergradient", "aspect")]
)
def test_negative_settings_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"Settings.{name} must be"):
        Settings(**{name: -1})


def test_without_theta_updates_only_a_moves() -> None:
    """Algorithm 1 with its line 3 empty."""
    net = detector()
    state = start(net)
    theta = {name: p.clone() for name, p in state.theta.items()}
    settings = replace(TINY, theta_updates=0, warm_start_epochs=0)
    tune(net, CutDiff(), pictures(20), pictures(12, seed=1), state, settings)
    assert state.n_updates == 0 and len(state.history) == settings.max_iterations
    assert all(torch.equal(theta[name], p) for name, p in state.theta.items())
    assert not torch.equal(state.a, start(net).a)
    assert not any(any(r.indirect_gradient) for r in state.history)


def test_all_events_of_other_processes_arrive_and_the_door_closes() -> None:
    """Three hundred times: a door that misses the last knock would wait for ever."""
    heard: list[object] = []
    for number in range(300):
        with _mailbox(heard.append) as (address, key), Client(address, authkey=key) as connection:  # type: ignore[arg-type]
            connection.send(number)
    assert heard == list(range(300))
