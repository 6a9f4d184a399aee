"""The tuner's parts, and Algorithm 1 on a small problem."""

import copy
import math
from dataclasses import fields, replace

import pytest
import torch

from stssad import CutDiff, ResNet18, Rotation
from stssad.augment import Augmentation
from stssad.augment.perturbed import Perturbed
from stssad.encoders.detector import Detector
from stssad.images.reading import Aspect
from stssad.settings import EndState, Mode, PretrainedSettings, Settings
from stssad.tuning.descent import ADAM_BETAS, a_step_sizes, clamped_share, descend
from stssad.tuning.problem import TuningProblem, draw_sample, draw_train_batch
from stssad.tuning.tuner import (
    Best,
    Record,
    TunerState,
    initial_state,
    remember_best,
    step_size,
    train_on,
    train_step,
    tune,
    warm_start,
)
from stssad.tuning.tuner_codec import TunerCodec
from stssad.tuning.val_loss import mean_distance_loss

WORDS = (Aspect, EndState, Mode)
TINY = Settings(
    image_size=32,
    width=4,
    batch_size=8,
    warm_start_epochs=2,
    max_iterations=4,
    val_train_samples=10,
    val_augmented_samples=6,
    val_pool_samples=5,
    smoothing=2,
    patience=50,
)


def some_images(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 3, 32, 32, generator=generator) * 0.5 + 0.3


def problem(settings: Settings = TINY, augmentation: Augmentation | None = None) -> TuningProblem:
    detector = Detector(ResNet18(width=4), image_size=32)
    return TuningProblem(
        detector,
        augmentation or CutDiff(),
        mean_distance_loss,
        some_images(20),
        some_images(12, seed=1),
        settings,
    )


def start(of: TuningProblem, seed: int = 0) -> TunerState:
    return initial_state(of, torch.tensor([math.log(0.05), 0.2, 0.1]), seed)


def run(settings: Settings = TINY, seed: int = 0) -> TunerState:
    of = problem(settings)
    state = start(of, seed)
    warm_start(of.perturbed(), state)
    tune(of.perturbed(), state)
    train_on(of, state)
    return state


@pytest.mark.usefixtures("float64")
def test_train_step_equals_torchs_sgd() -> None:
    of = problem(replace(TINY, weight_decay=0.01))
    state = start(of)
    module = Detector(ResNet18(width=4), image_size=32).network
    module.load_state_dict({**state.theta, **state.buffers})
    sgd = torch.optim.SGD(module.parameters(), lr=1.0, momentum=0.9, weight_decay=0.01)
    for k in range(3):
        alpha = step_size(of.settings, 20, k)
        batch = draw_train_batch(of, torch.arange(8) + k, state.generator)
        augmented = CutDiff()(batch.sources, state.a, batch.noise)
        logits = module.train()(torch.cat([batch.normal, augmented]))
        targets = torch.tensor([0] * 8 + [1] * 8)
        loss = torch.nn.functional.cross_entropy(logits, targets)
        sgd.zero_grad()
        loss.backward()
        sgd.param_groups[0]["lr"] = alpha
        sgd.step()
        step = train_step(of, state, batch)
        assert step.loss == pytest.approx(loss.item(), rel=1e-9) and step.alpha == alpha
    for name, wanted in module.state_dict().items():
        got = {**state.theta, **state.buffers}[name]
        torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-10)


def test_a_step_says_where_it_began_and_where_it_led() -> None:
    of = problem()
    state = start(of)
    before = state.theta
    step = train_step(of, state, draw_train_batch(of, torch.arange(8), state.generator))
    assert step.theta is before and step.theta_next is state.theta
    assert step.buffers_next is state.buffers and state.n_updates == 1


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
    n_updates = TINY.warm_start_epochs * 3 + TINY.max_iterations  # 20 images are 3 batches of 8
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


def test_gamma_sets_the_number_of_augmented_images() -> None:
    generator = torch.Generator().manual_seed(0)
    for gamma, n in ((0.5, 4), (1.0, 8), (2.0, 16)):
        of = problem(replace(TINY, augmented_ratio=gamma))
        batch = draw_train_batch(of, torch.arange(8), generator)
        assert len(batch.normal) == 8 and len(batch.sources) == len(batch.noise) == n
        assert torch.equal(batch.sources[: min(n, 8)], batch.normal[: min(n, 8)])


def test_sample_sizes_of_the_validation_loss_are_as_set_or_all_there_is() -> None:
    generator = torch.Generator().manual_seed(0)
    sample = draw_sample(problem(), generator)
    assert [len(x) for x in (sample.train, sample.sources, sample.pool)] == [10, 6, 5]
    everything = replace(TINY, val_train_samples=500, val_pool_samples=None)
    sample = draw_sample(problem(everything), generator)
    assert [len(x) for x in (sample.train, sample.sources, sample.pool)] == [20, 6, 12]
    assert len(torch.unique(sample.train, dim=0)) == 20  # without repetition


def test_clamped_share_counts_the_pixels_driven_to_black() -> None:
    of = problem()
    state = start(of)
    batch = draw_train_batch(of, torch.arange(8), state.generator)
    augmented = CutDiff()(batch.sources, state.a, batch.noise)
    share = clamped_share(CutDiff(), state.a, batch.sources, batch.noise)
    assert share == pytest.approx((augmented == 0).float().mean().item()) and share > 0


def losses(values: list[float]) -> list[Record]:
    return [Record(i, v / 2, v / 2, [], {}, [], [], 0, 0, 0) for i, v in enumerate(values)]


def replay(values: list[float], settings: Settings) -> tuple[Best | None, int]:
    """The best state, and after how many iterations the stop rule ends, for given losses."""
    state = start(problem())
    for r in losses(values):
        if state.is_over(settings):
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


@pytest.mark.parametrize("kind", [Settings, PretrainedSettings])
def test_negative_settings_are_refused_by_name(kind: type) -> None:
    for name in [f.name for f in fields(kind) if f.type not in WORDS]:
        with pytest.raises(ValueError, match=f"{kind.__name__}.{name} must be"):
            kind(**{name: -1})


def test_alpha_stays_and_then_falls_over_the_last_share_of_the_updates() -> None:
    settings = replace(TINY, theta_decay=0.5, final_updates=6)  # 2 x 3 + 4 + 6 updates
    sizes = [step_size(settings, 20, k) for k in range(17)]
    assert sizes[:9] == [settings.theta_step_size] * 9
    assert sizes[12] == pytest.approx(settings.theta_step_size / 2)
    assert sizes[16] == pytest.approx(0, abs=1e-12)


def test_a_restart_ends_with_its_best_state_or_its_last() -> None:
    best, last = run(), run(replace(TINY, end_state="last"))
    assert best.best is not None and last.best is not None
    assert torch.equal(best.a, best.best.a) and all(
        torch.equal(best.theta[k], best.best.theta[k]) for k in best.theta
    )
    # the same iterations, and one more step of `a` after the last of them
    assert [r.a for r in last.history] == [r.a for r in best.history]
    assert last.a.tolist() not in [r.a for r in last.history]


@pytest.mark.parametrize("end_state", ["best", "last"])
def test_final_training_moves_theta_at_the_learned_a_and_alpha_falls_to_zero(
    end_state: EndState,
) -> None:
    tuned = run(replace(TINY, end_state=end_state, theta_decay=0.5))
    settings = replace(TINY, end_state=end_state, theta_decay=0.5, final_updates=7)
    of = problem(settings)
    state = start(of)
    warm_start(of, state)
    tune(of, state)
    steps: list[float] = []

    def counted(theta: TunerState) -> None:
        steps.append(step_size(settings, 20, theta.n_updates))

    before = state.best.a.clone() if end_state == "best" and state.best else state.a.clone()
    train_on(of, state, counted)
    assert torch.equal(state.a, before) and len(state.final_losses) == 7
    assert state.n_updates == 2 * 3 + 4 + 7 and steps[-1] == pytest.approx(0, abs=1e-12)
    assert not torch.equal(
        state.theta["encoder.stem.0.weight"], tuned.theta["encoder.stem.0.weight"]
    )


def test_final_training_lowers_the_training_loss() -> None:
    settings = replace(TINY, final_updates=40, end_state="last", theta_decay=0.3)
    state = run(settings)
    assert sum(state.final_losses[-10:]) < 0.7 * sum(state.final_losses[:10])


def test_final_training_after_an_early_stop_has_a_falling_alpha_too() -> None:
    settings = replace(TINY, max_iterations=50, patience=1, smoothing=1, final_updates=5)
    of = problem(settings)
    state = start(of)
    warm_start(of, state)
    tune(of, state)
    assert len(state.history) < 50
    train_on(of, state)
    assert step_size(settings, 20, state.n_updates) == pytest.approx(0, abs=1e-12)


@pytest.mark.bit_identical
def test_final_training_resumes_from_a_checkpoint_bit_identically() -> None:
    settings = replace(TINY, final_updates=25, a_noise=0.3)
    of = problem(settings)
    kept = []

    def keep(state: TunerState) -> None:
        if state.final_losses:
            tensors, metadata = TunerCodec().pack(state)
            kept.append(({k: t.clone() for k, t in tensors.items()}, copy.deepcopy(metadata)))

    state = start(of)
    warm_start(of.perturbed(), state)
    tune(of.perturbed(), state)
    train_on(of, state, keep)
    assert [len(metadata["final_losses"]) for _, metadata in kept] == [10, 20, 25]
    for content in kept:
        again = TunerCodec().unpack(content)
        train_on(of, again)
        assert again.final_losses == state.final_losses
        assert all(torch.equal(again.theta[k], state.theta[k]) for k in state.theta)


def test_noise_around_a_is_for_tuning_alone() -> None:
    with_noise, without = problem(replace(TINY, a_noise=0.5)), problem()
    assert isinstance(with_noise.perturbed().augmentation, Perturbed)
    assert without.perturbed() is without
    tuned = run(replace(TINY, a_noise=0.5))
    assert [r.a for r in tuned.history] != [r.a for r in run().history]
    assert tuned.history[0].a == pytest.approx([math.log(0.05), 0.2, 0.1])


def test_theta_decay_is_a_share() -> None:
    with pytest.raises(ValueError, match="theta_decay is a share"):
        Settings(theta_decay=1.5)
