"""Decisions without labels: rates and intervals that hold."""

import numpy as np
import pytest
import torch

from stssad.scoring.contamination import Contamination, contamination
from stssad.scoring.decision import SENSITIVITIES, Decision, Thresholds, flagged_at
from stssad.scoring.false_discovery import discovery_threshold, q_values
from stssad.scoring.tail import NormalTail
from stssad.scoring.threshold import held_out_split


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    """Scores of normal images: log-normal above a floor of 5, as squared distances are."""
    return 5 + np.exp(rng.normal(2, 0.4, n))


def test_split_is_disjoint_complete_and_repeatable() -> None:
    kept, held = held_out_split(50, 0.2, seed=3)
    assert len(held) == 10 and sorted([*kept.tolist(), *held.tolist()]) == list(range(50))
    assert torch.equal(held, held_out_split(50, 0.2, seed=3)[1])
    assert not torch.equal(held, held_out_split(50, 0.2, seed=4)[1])
    assert len(held_out_split(50, 0.0, seed=3)[1]) == 0


@pytest.mark.parametrize("rate", [0.005, 0.01, 0.05])
@pytest.mark.parametrize("n", [10, 30, 100, 300])
@pytest.mark.parametrize("tail", ["log-normal", "exponential"])
def test_threshold_keeps_the_wanted_rate_on_average(rate: float, n: int, tail: str) -> None:
    """Also far beyond what n scores show, whether the tail falls as a Gaussian's or slower."""
    rng = np.random.default_rng(0)

    def draw(n: int) -> np.ndarray:
        return normal(rng, n) if tail == "log-normal" else rng.exponential(1, n)

    rates = [np.mean(draw(4000) > NormalTail.of(draw(n)).threshold(rate)) for _ in range(300)]
    least = rate / 4 if n > 10 else rate / 8  # of ten scores, five are in the tail
    assert least < np.mean(rates) < 1.6 * rate + 0.002


def test_odd_training_images_dont_make_the_threshold_blind() -> None:
    """Three of 250 that score far above all others move the threshold by little."""
    rng = np.random.default_rng(0)
    clean = rng.normal(0, 1, 250)
    odd = np.concatenate([clean[:247], [9.0, 10.0, 11.0]])
    moved = NormalTail.of(odd).threshold(0.01) - NormalTail.of(clean).threshold(0.01)
    assert 0 <= moved < 0.8
    assert np.mean(rng.normal(0, 1, 50_000) > NormalTail.of(odd).threshold(0.01)) > 0.002


def test_few_images_support_no_arbitrarily_low_rate() -> None:
    tail = NormalTail.of(np.random.default_rng(0).normal(0, 1, 9))
    assert tail.lowest_rate == pytest.approx(0.01)
    assert tail.threshold(1e-6) == tail.threshold(0.01)


def test_p_value_is_a_p_value() -> None:
    """Below the tail it is conformal; above, it falls on; and it has the threshold's rate."""
    tail = NormalTail.of(np.arange(90.0))
    np.testing.assert_allclose(
        tail.p_values(np.array([-1.0, 0.0, 44.5])), [1.0, 1.0, 46 / 91], rtol=1e-12
    )
    scores = np.linspace(-5, 300, 400)
    assert (np.diff(tail.p_values(scores)) <= 0).all() and tail.p_values(scores)[-1] < 1e-4
    for rate in (0.2, 0.05, 0.01, 0.002):
        at = tail.p_values(np.array([np.nextafter(tail.threshold(rate), np.inf)]))[0]
        assert at == pytest.approx(rate, abs=1 / 91 if rate > tail.share else 1e-9)
    rng = np.random.default_rng(0)
    p = [NormalTail.of(normal(rng, 30)).p_values(normal(rng, 1))[0] for _ in range(4000)]
    for level in (0.01, 0.05, 0.2, 0.5):
        assert np.mean(np.array(p) <= level) < level + 3 * np.sqrt(level / 4000) + 0.004


def test_q_values_are_those_of_benjamini_and_hochberg() -> None:
    """Against scipy's, and against the definition: the lowest level that flags the image."""
    from scipy.stats import false_discovery_control

    rng = np.random.default_rng(0)
    p = np.round(rng.uniform(0.05, 1, 60) ** 3, 3)  # with ties
    q = q_values(p)
    np.testing.assert_allclose(q, false_discovery_control(p), rtol=1e-9)
    for level in (0.01, 0.1, 0.4):
        ordered = np.sort(p)
        passed = np.flatnonzero(ordered <= level * np.arange(1, 61) / 60)
        cut = ordered[passed[-1]] if len(passed) else -1
        np.testing.assert_array_equal(q <= level, p <= cut)


@pytest.mark.parametrize("n_bad", [0, 6, 20, 40])
@pytest.mark.parametrize("n_normal", [30, 100, 250])
def test_false_discoveries_are_kept_on_average(n_normal: int, n_bad: int) -> None:
    rng = np.random.default_rng(3)
    shares, recalls = [], []
    for _ in range(300):
        tail = NormalTail.of(rng.normal(0, 1, n_normal))
        pool = np.concatenate([rng.normal(0, 1, 80 - n_bad), rng.normal(3.5, 1, n_bad)])
        flagged = pool > discovery_threshold(pool, tail, 0.1)
        shares.append(flagged[: 80 - n_bad].sum() / max(1, flagged.sum()))
        recalls.append(flagged[80 - n_bad :].mean() if n_bad else 1)
    assert np.mean(shares) < 0.12
    assert np.mean(recalls) > 0.25


def test_the_discovery_threshold_flags_just_what_the_q_values_say() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        tail = NormalTail.of(rng.normal(0, 1, 50))
        pool = np.round(np.concatenate([rng.normal(0, 1, 30), rng.normal(3, 1, 10)]), 1)
        wanted = q_values(tail.p_values(pool)) <= 0.1
        np.testing.assert_array_equal(pool > discovery_threshold(pool, tail, 0.1), wanted)


def test_a_decision_has_one_threshold_for_new_images_and_one_for_the_pool() -> None:
    rng = np.random.default_rng(5)
    tail = NormalTail.of(rng.normal(0, 1, 200))
    pool = np.concatenate([rng.normal(0, 1, 40), rng.normal(5, 1, 40)])

    def both(decision: Decision, pool: np.ndarray | None = pool) -> tuple[float, float]:
        thresholds = Thresholds.of(decision, tail, pool)
        return thresholds.new, thresholds.pool

    new, of_pool = both(Decision())
    assert new == tail.threshold(0.01) and of_pool == discovery_threshold(pool, tail, 0.1) != new
    assert both(Decision(0.05, None)) == (tail.threshold(0.05),) * 2
    assert both(Decision(None, 0.1)) == (of_pool,) * 2
    assert both(Decision(score=2.0)) == (2.0, 2.0)
    assert both(Decision(), None) == (new, new)
    with pytest.raises(ValueError, match="needs a pool"):
        both(Decision(None, 0.1), None)
    counts = [n for _, n in flagged_at(pool, tail)]
    assert counts == sorted(counts)
    flagged = [(pool > both(SENSITIVITIES[s])[1]).sum() for s in SENSITIVITIES]
    assert flagged == sorted(flagged)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.4])
@pytest.mark.parametrize("n_normal", [40, 150])
@pytest.mark.parametrize("away", [60, 6])
def test_contamination_interval_covers_the_truth(share: float, n_normal: int, away: float) -> None:
    """Whether anomalies score above all normal images, or overlap with them."""
    rng = np.random.default_rng(1)
    covered, n_pool = 0, 120
    for _ in range(200):
        n_bad = round(share * n_pool)
        pool = np.concatenate([normal(rng, n_pool - n_bad), away + normal(rng, n_bad)])
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
    assert Contamination(0.02, 0.0, 0.07).summarise().startswith("no more of the pool's images")
    assert Contamination(0.2, 0.1, 0.3).summarise() == (
        "at least 10 % of the pool look anomalous (estimate 20 %, at most 30 %)"
    )


def test_few_and_equal_scores_are_no_obstacle() -> None:
    assert NormalTail.of(np.array([3.0])).threshold(0.01) == 3.0
    assert np.isfinite(NormalTail.of(np.full(5, 3.0)).threshold(0.01))
    found = contamination(np.array([1.0, 2.0]), np.array([1.0]))
    assert 0 <= found.low <= found.high <= 1
