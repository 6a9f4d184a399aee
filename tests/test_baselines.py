"""Each method learns something on an easy task, and repeats under a seed."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stssad import STSSAD, CutDiff, CutOut, PretrainedSettings, Rotation, Settings
from stssad.augment.rotation import rotate
from stssad.experiments.baselines.autoencoder import AutoEncoder
from stssad.experiments.baselines.deep_svdd import DeepSVDD
from stssad.experiments.baselines.random_augmentation import RandomAugmentation
from stssad.experiments.baselines.random_search import RandomSearch
from stssad.experiments.bench.methods import (
    METHODS,
    PRETRAINED,
    Estimator,
    Surroundings,
    default_methods,
    find_method,
)
from stssad.experiments.testbeds.presets import cpu_planted
from stssad.experiments.testbeds.synthetic import planted_patch, texture_crops
from stssad.experiments.testbeds.task import Task

SETTINGS = cpu_planted(width=8, warm_start_epochs=8, max_iterations=4, smoothing=2)
SHORT = replace(SETTINGS, warm_start_epochs=2, max_iterations=2)


@pytest.fixture(scope="module")
def patches() -> Task:
    """Large dark patches on half of the pool."""
    return planted_patch(0.08, texture="brick", image_size=32, n_train=64, n_pool=48)


@pytest.fixture(scope="module")
def turned(patches: Task) -> Task:
    """Half of the pool turned by 30 degrees, black corners and all."""
    half = torch.from_numpy(patches.test_labels == 1)[:, None, None, None]
    clean = texture_crops("brick", len(patches.pool), 32, torch.Generator().manual_seed(5))
    pool = torch.where(half, rotate(clean, torch.tensor(math.radians(30)), "zeros"), clean)
    return Task("turned", patches.train, pool, pool, patches.test_labels)


@pytest.fixture(scope="module")
def few() -> Task:
    """Enough to run, not to find anything."""
    return planted_patch(0.08, texture="brick", image_size=32, n_train=16, n_pool=12)


def quick(name: str, seed: int = 0, settings: Settings = SETTINGS) -> Estimator:
    """With fewer epochs where there are hundreds by default."""
    epochs = 5 * settings.warm_start_epochs
    if name == "AE":
        return AutoEncoder(settings, seed, epochs=epochs)
    if name == "D-SVDD":
        return DeepSVDD(settings, seed, pretrain_epochs=epochs, epochs=epochs // 2, step_size=1e-3)
    augmentation = Rotation if name.endswith("RO") else CutDiff
    if name == PRETRAINED:
        own = PretrainedSettings(max_iterations=2, val_augmented_samples=4)
        return find_method(name).build(Surroundings(own, augmentation, seed, None))
    return find_method(name).build(Surroundings(settings, augmentation, seed, None))


def scores(name: str, task: Task, seed: int = 0, settings: Settings = SETTINGS) -> Tensor:
    estimator = quick(name, seed, settings)
    estimator.fit(task.train, task.pool)
    return torch.from_numpy(estimator.decision_function(task.test))


LONG = ("MMD1", "MMD2")  # like ST-SSAD, which isn't: four restarts each


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] if n in LONG else [])
        for n in METHODS
        if not n.endswith("RO")
    ],
)
def test_finds_dark_patches(name: str, patches: Task) -> None:
    assert patches.auc(scores(name, patches).numpy()) > 0.75


@pytest.mark.parametrize("name", ["RS-RO", "RD-RO"])
def test_finds_turned_images(name: str, turned: Task) -> None:
    assert turned.auc(scores(name, turned).numpy()) > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("name", ["RS-CO", "RD-CO", "RD-CD"])
def test_training_finds_small_patches_better_than_chance_weights_do(name: str) -> None:
    """On average over six seeds: a few dozen updates are erratic, and differ between CPUs."""
    untrained = replace(SETTINGS, warm_start_epochs=0, max_iterations=1, smoothing=1)
    gained = []
    for seed in range(6):
        task = planted_patch(
            0.006, texture="gravel", image_size=32, n_train=64, n_pool=48, seed=seed
        )
        before = find_method(name).build(Surroundings(untrained, CutDiff, seed, None))
        before.fit(task.train, task.pool)
        chance = task.auc(before.decision_function(task.test))
        gained.append(task.auc(scores(name, task, seed).numpy()) - chance)
    assert sum(gained) / len(gained) > 0.1, gained


def test_an_autoencoder_learns_to_reconstruct(patches: Task) -> None:
    errors = [
        AutoEncoder(SETTINGS, epochs=n).fit(patches.train).decision_function(patches.train).mean()
        for n in (0, 150)
    ]
    assert errors[1] < errors[0] / 2


def test_deep_svdd_draws_normal_images_to_its_centre(patches: Task) -> None:
    def spread(epochs: int) -> float:
        """How far normal images are from the centre, against its distance from zero."""
        model = DeepSVDD(SETTINGS, pretrain_epochs=60, epochs=epochs, step_size=1e-3)
        distances = model.fit(patches.train).decision_function(patches.train)
        return float(distances.mean() / model.center_.square().sum())

    assert spread(60) < spread(0) / 3


@pytest.mark.parametrize("name", ["AE", "D-SVDD", "RS-CO", "RD-CP", "RS-RO", "ST-SSAD", "FO"])
def test_repeats_under_a_seed_and_differs_under_another(name: str, few: Task) -> None:
    first, again, other = (scores(name, few, seed, SHORT) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_static_draws_once_and_dynamic_at_every_epoch(patches: Task) -> None:
    drawn: list[Tensor] = []

    class Counting(CutOut):
        def random_value(self, generator: torch.Generator) -> Tensor:
            drawn.append(super().random_value(generator))
            return drawn[-1]

    RandomAugmentation(Counting(), False, SETTINGS).fit(patches.train)
    assert len(drawn) == 1
    drawn.clear()
    RandomAugmentation(Counting(), True, SETTINGS).fit(patches.train)
    # 8 epochs of 2 updates, and 4 updates more
    assert len(drawn) == 10
    assert len({tuple(a.tolist()) for a in drawn}) == 10


def test_the_paper_names_its_methods() -> None:
    assert default_methods("tile") == [
        "AE",
        "D-SVDD",
        "RS-CO",
        "RD-CO",
        "RS-CP",
        "RD-CP",
        "RS-CD",
        "RD-CD",
        "ST-SSAD",
        "MMD1",
        "MMD2",
        "FO",
        "RS4-CD",
    ]
    assert default_methods("svhn") == [
        "AE",
        "D-SVDD",
        "RS-RO",
        "RD-RO",
        "ST-SSAD",
        "MMD1",
        "MMD2",
        "FO",
        "RS4-RO",
    ]
    with pytest.raises(ValueError, match="unknown method 'XY'"):
        find_method("XY")


def test_deep_svdd_keeps_its_centre_away_from_zero(patches: Task) -> None:
    model = DeepSVDD(SETTINGS, pretrain_epochs=1, epochs=1).fit(patches.train)
    assert float(model.center_.abs().min()) >= 0.1 - 1e-6


def test_random_search_takes_the_draw_whose_scores_on_the_pool_vary_most(patches: Task) -> None:
    other = planted_patch(0.02, texture="brick", image_size=32, n_train=64, n_pool=48, seed=3)
    search = RandomSearch(CutDiff(), False, SETTINGS, seed=0).fit(patches.train, patches.pool)
    assert len(search.draws_) == 4 and len({str(d.learned_) for d in search.draws_}) == 4
    for pool in (patches.pool, other.pool):
        search.choose(pool)
        variances = [float(d.decision_function(pool).var()) for d in search.draws_]
        assert search.chosen_ is search.draws_[variances.index(max(variances))]
    again = RandomSearch(CutDiff(), False, SETTINGS, seed=0).fit(patches.train, other.pool)
    assert again.learned_ == search.learned_


def test_random_methods_make_as_many_updates_as_a_restart_of_ours(patches: Task) -> None:
    counted: list[int] = []

    class Counting(CutDiff):
        def draw(self, n: int, generator: torch.Generator) -> Tensor:
            counted.append(n)
            return super().draw(n, generator)

    settings = replace(SETTINGS, final_updates=5)
    RandomAugmentation(Counting(), False, settings).fit(patches.train)
    n_random = len(counted)
    counted.clear()
    one = Counting(sizes=(0.1,))
    STSSAD("paper", one, settings=settings).fit(patches.train, patches.pool)
    # besides: one draw for L_val in each iteration, and one for the change of embeddings
    assert len(counted) == n_random + settings.max_iterations + 1
