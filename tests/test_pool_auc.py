"""Comparing scores by an unlabeled pool: the identity, the test's error, the folds."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import rankdata

from stssad.scoring.pool_auc import AHEAD_OF, Gain, Sides, shares_below

Rows = npt.NDArray[np.float64]


def auc(normal: Rows, other: Rows) -> float:
    """By counting pairs."""
    return float((other[:, None] > normal).mean() + 0.5 * (other[:, None] == normal).mean())


def test_auroc_of_a_pool_is_affine_in_that_of_its_anomalies() -> None:
    """AUC_np = 1/2 + π(AUC - 1/2), to the digit where the pool's normal images are the others."""
    rng = np.random.default_rng(0)
    normal, anomalous = rng.normal(size=300), rng.normal(1.3, 1.0, 90)
    share = 0.25
    mixed = share * auc(normal, anomalous) + (1 - share) * auc(normal, normal)
    assert mixed == pytest.approx(0.5 + share * (auc(normal, anomalous) - 0.5))
    of_pool = [shares_below(x, normal).mean() for x in (anomalous, normal)]
    assert of_pool[0] == pytest.approx(auc(normal, anomalous))
    assert of_pool[1] == pytest.approx(0.5)


def test_ahead_is_the_chance_to_beat_16_of_the_normal_images() -> None:
    """By drawing them."""
    rng = np.random.default_rng(1)
    sides = Sides(rng.normal(size=80), rng.normal(1.0, 1.0, 40))
    drawn = sides.normal[rng.integers(0, 80, (20_000, AHEAD_OF))].max(axis=1)
    wins = (sides.pool[:, None] > drawn).mean(axis=1)
    assert np.abs(wins - sides.ahead().pool).max() < 0.02


def test_normal_images_are_not_compared_with_themselves() -> None:
    scores = np.array([3.0, 1.0, 2.0, 2.0])
    assert shares_below(scores, scores, own=True).tolist() == [1, 0, 0.5, 0.5]
    assert np.allclose(shares_below(scores, scores), (rankdata(scores) - 0.5) / 4)


def test_a_better_score_is_told_from_an_equal_one() -> None:
    """p is uniform, or larger, where the other score only adds noise; small where it helps."""
    rng = np.random.default_rng(2)
    equal, better = [], []
    for _ in range(400):
        anomalous = rng.random(100) < 0.3
        strength = Sides(np.zeros(150), 1.5 * anomalous)
        scores = Sides(rng.normal(size=150), rng.normal(size=100)).plus(strength, 1)
        other = Sides(rng.normal(size=150), rng.normal(size=100))
        equal.append(Gain.between(scores, scores.plus(other, 0.3), 10).p_value)
        better.append(Gain.between(scores, scores.plus(other.plus(strength, 2), 0.3), 10).p_value)
    assert np.mean(np.array(equal) < 0.05) < 0.05
    assert np.mean(np.array(better) < 0.05) > 0.8


def test_a_score_that_changes_nothing_has_no_gain() -> None:
    sides = Sides(np.arange(20.0), np.arange(10.0))
    gain = Gain.between(sides, sides.standardised(), 10)
    assert gain.before == gain.after and gain.p_value == 0.5
