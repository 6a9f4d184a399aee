"""Decisions without labels: rates and intervals that hold."""

import numpy as np
import pytest
import torch

from stssad.scoring.contamination import Contamination, contamination
from stssad.scoring.threshold import (
    held_out_split,
    p_values,
    threshold_for,
)


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    """Scores of normal images: log-normal above a floor of 5, as squared distances are."""
    return 5 + np.exp(rng.normal(2, 0.4, n))


def test_split_is_disjoint_complete_and_repeatable() -> None:
    kept, held = held_out_split(50, 0.2, seed=3)
    assert len(held) == 10 and sorted([*kept.tolist(), *held.tolist()]) == list(range(50))
    assert torch.equal(held, held_out_split(50, 0.2, seed=3)[1])
    assert not torch.equal(held, held_out_split(50, 0.2, seed=4)[1])
    assert len(held_out_split(50, 0.0, seed=3)[1]) == 0


@pytest.mark.parametrize("rate,n", [(0.1, 40), (0.05, 60), (0.01, 200), (0.01, 40), (0.01, 15)])
def test_threshold_keeps_the_wanted_rate_on_average(rate: float, n: int) -> None:
    """With few scores for the rate (the last two) it relies on the log-normal tail."""
    rng = np.random.default_rng(0)
    rates = [
        np.mean(normal(rng, 4000) > threshold_for(normal(rng, n), rate, floor=5))
        for _ in range(400)
    ]
    error = np.std(rates) / np.sqrt(len(rates))
    # conformal: between rate - 1/(n+1) and rate; tail: exact
    assert rate - 1 / (n + 1) - 4 * error < np.mean(rates) < rate + 4 * error


def test_p_value_is_a_p_value() -> None:
    scores = np.arange(9.0)
    np.testing.assert_allclose(
        p_values(np.array([-1.0, 0.0, 4.5, 8.0, 99.0]), scores),
        [1.0, 1.0, 0.5, 0.2, 0.1],
    )
    rng = np.random.default_rng(0)
    p = [p_values(normal(rng, 1), normal(rng, 30))[0] for _ in range(2000)]
    assert np.mean(np.array(p) <= 0.2) == pytest.approx(0.2, abs=0.035)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.4])
@pytest.mark.parametrize("n_normal", [40, 150])
def test_contamination_interval_covers_the_truth(share: float, n_normal: int) -> None:
    rng = np.random.default_rng(1)
    covered, n_pool = 0, 120
    for _ in range(200):
        n_bad = round(share * n_pool)
        pool = np.concatenate([normal(rng, n_pool - n_bad), 60 + normal(rng, n_bad)])
        found = contamination(pool, normal(rng, n_normal))
        covered += found.low <= share <= found.high
        assert found.low <= found.estimate <= found.high
    assert covered >= 0.93 * 200


def test_a_clean_pool_is_called_clean_and_a_contaminated_one_not() -> None:
    rng = np.random.default_rng(2)
    clean = [contamination(normal(rng, 100), normal(rng, 60)).looks_clean for _ in range(100)]
    dirty = [
        contamination(np.concatenate([normal(rng, 70), 60 + normal(rng, 30)]), normal(rng, 60))
        for _ in range(100)
    ]
    assert np.mean(clean) > 0.93
    assert not any(found.looks_clean for found in dirty)


def test_contamination_is_summarised() -> None:
    assert Contamination(0.02, 0.0, 0.07).summarise().startswith("the pool looks clean")
    assert Contamination(0.2, 0.1, 0.3).summarise() == (
        "about 20 % of the pool look anomalous (10 to 30 %)"
    )


def test_few_and_equal_scores_are_no_obstacle() -> None:
    assert threshold_for(np.array([3.0]), 0.01, floor=1) == 3.0
    assert np.isfinite(threshold_for(np.full(5, 3.0), 0.01, floor=3.0))
    found = contamination(np.array([1.0, 2.0]), np.array([1.0]))
    assert 0 <= found.low <= found.high <= 1
