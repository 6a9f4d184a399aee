"""What a pool teaches: a direction that helps, nothing from clean pools, nothing of a recording."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from stssad.encoders.features import Features, NormalFeatures
from stssad.scoring.folds import random_folds
from stssad.scoring.memory_bank import MemoryBank, highest
from stssad.scoring.pool_auc import Sides
from stssad.scoring.pool_part import (
    CANDIDATES,
    LEVEL,
    PoolPart,
    PoolProblem,
    Trial,
    choose_part,
    direction_of,
)
from stssad.scoring.score import PretrainedScore
from stssad.scoring.whitening import Whitening

D = 12


def normals(n: int, seed: int) -> Tensor:
    """Correlated, as embeddings are."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(D, D, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    return torch.randn(n, D, generator=generator, dtype=torch.float64) @ mixing


def anomalies(n: int, seed: int, strength: float = 4.0) -> Tensor:
    """Moved along a direction in which normal images vary little, so that few are outliers."""
    covariance = torch.cov(normals(4000, 5).T)
    values, vectors = torch.linalg.eigh(covariance)
    return normals(n, seed) + strength * values[1].sqrt() * vectors[:, 1]


def posed(train: Tensor, pool: Tensor, seed: int = 0) -> tuple[PoolProblem, PretrainedScore]:
    normal, fold = NormalFeatures.plain(train), random_folds(len(train), seed)
    score = PretrainedScore()
    of_normal = score.calibrate(score.fit(normal, fold, seed))
    own = random_folds(len(pool), seed + 1, int(fold.max()) + 1)
    return score.pool_problem(normal, fold, of_normal, Features(pool), own, None), score


def test_a_direction_is_learned_from_anomalies_that_are_no_outliers() -> None:
    pool = torch.cat([normals(90, 1), anomalies(60, 2)])
    problem, _ = posed(normals(200, 0), pool)
    trial = choose_part(problem)
    assert trial.is_taught and trial.gain.p_value < 0.001 and trial.gain.after > trial.gain.before
    direction, along = problem.embeddings.learn(CANDIDATES[trial.candidate](problem.scores))
    assert along.pool[90:].mean() > along.normal.mean() + 2
    part = PoolPart.of(direction, trial.weight, along, problem.scores)
    unseen, defects = normals(400, 7), anomalies(400, 8)
    score = posed(normals(200, 0), pool)[1]
    before = [score(Features(x)).scores for x in (unseen, defects)]
    score.pool_part = part
    after = [score(Features(x)).scores for x in (unseen, defects)]

    def auc(scores: list[Tensor]) -> float:
        return float((scores[1][:, None] > scores[0]).double().mean())

    assert auc(after) > auc(before) + 0.05
    assert float(after[0].mean()) == pytest.approx(0, abs=0.25)  # on the scale that it was on
    assert float(after[0].std()) == pytest.approx(1, abs=0.25)


def test_clean_pools_teach_nothing() -> None:
    """p-values of 200 clean pools, which choose the best of three candidates."""
    trials = [choose_part(posed(normals(80, 2 * k), normals(60, 2 * k + 1))[0]) for k in range(200)]
    p_values = np.array([trial.gain.p_value for trial in trials])
    assert (p_values <= 0.01).mean() <= 0.02  # by the binomial's 90 % quantile
    assert (p_values <= LEVEL).mean() <= 0.075
    assert np.mean([trial.is_taught for trial in trials]) <= 0.075


def test_another_recording_is_not_learned() -> None:
    """All of the pool is moved, a little: an AUROC of pool against normal images rises by that."""
    problem, _ = posed(normals(200, 0), anomalies(150, 1, 2.5))
    trial = choose_part(problem)
    assert trial.gain.p_value < 0.001 and trial.body < 0.25
    assert not trial.is_taught and trial.is_refused


def test_images_of_one_fold_teach_nothing_to_themselves() -> None:
    """The same from the definition: each image along the mean of the others' whitened embeddings,
    as a unit vector, whitened by normal images of the other folds."""
    train, pool = normals(40, 0), normals(20, 1)
    problem, _ = posed(train, pool)
    z = problem.embeddings
    found = problem.held_out(CANDIDATES["all images"])
    for k in range(problem.n_folds):
        whitening = Whitening.of(train[z.normal_fold != k])
        u = whitening(pool[z.pool_fold != k]).mean(0)
        u = u / u.norm()
        rows, own = z.normal_fold == k, z.pool_fold == k
        expected = whitening(train[rows]) @ u, whitening(pool[own]) @ u
        assert np.allclose(found.normal[rows.numpy()], expected[0])
        assert np.allclose(found.pool[own.numpy()], expected[1])


def test_what_is_learned_holds_out_each_image_of_the_pool() -> None:
    problem, _ = posed(normals(60, 0), normals(20, 1))
    z = problem.embeddings
    _, along = z.learn(np.ones(20))
    w = z.whitening(z.pool)
    for i in range(20):
        u = w[z.pool_fold != z.pool_fold[i]].sum(0)
        assert along.pool[i] == pytest.approx(float(w[i] @ u / u.norm()))


def test_left_out_scores_are_those_of_a_fit_without_the_fold() -> None:
    generator = torch.Generator().manual_seed(0)
    patches = torch.randn(40, 6, 5, 5, generator=generator)
    normal = NormalFeatures(
        Features(patches.mean((2, 3)), patches[:30]),
        Features(patches.mean((2, 3))[:5], patches[:5] + 0.1),
        torch.arange(5),
    )
    normal = replace(normal, features=normal.features[torch.arange(30)])
    pool, fold = Features(patches.mean((2, 3))[30:], patches[30:]), torch.arange(30) % 3
    bank = MemoryBank(size=120, n_nuisance=0)
    bank.fit(normal, fold, seed=0)
    found = bank.left_out(pool)
    parts = torch.split(bank.bank, bank._n_of_fold)
    for k in range(3):
        without = MemoryBank(n_nuisance=0)
        without.bank = torch.cat([part for j, part in enumerate(parts) if j != k])
        without.nuisance = bank.nuisance
        assert torch.allclose(found[:, k], highest(without(pool), 3), atol=1e-6)


def test_the_weight_rises_as_long_as_it_helps() -> None:
    """Where only the direction tells anomalies apart, it comes to outweigh the rest."""
    problem, _ = posed(normals(200, 0), torch.cat([normals(75, 1), anomalies(75, 2, 6.0)]))
    rng = np.random.default_rng(0)
    blind = Sides(rng.normal(size=200), rng.normal(size=150))
    much, usual = choose_part(replace(problem, scores=blind)), choose_part(problem)
    assert much.weight >= 1 and usual.weight <= 0.5


def test_a_trial_under_other_conditions_is_refused() -> None:
    problem, _ = posed(normals(200, 0), torch.cat([normals(90, 1), anomalies(60, 2)]))
    trial = replace(choose_part(problem), weight=0.0, differs=True)
    assert isinstance(trial, Trial) and trial.is_refused and not trial.is_taught


def test_a_direction_without_weights_is_zero() -> None:
    assert not direction_of(normals(4, 0), np.zeros(4)).any()
