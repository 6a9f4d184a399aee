"""The paper's method, all of it, on textures with a known answer."""

import pytest

from stssad import STSSAD, CutDiff
from stssad.experiments.testbeds.synthetic import planted_patch


@pytest.mark.slow
def test_recovers_a_planted_patch_from_a_start_ten_times_smaller() -> None:
    task = planted_patch(size=0.04, texture="grass", seed=1)  # in half of the pool
    model = STSSAD("paper", CutDiff(sizes=[0.004]), seed=1)
    model.fit(task.train, task.pool)
    assert 1 / 2.5 < model.learned_["size"] / 0.04 < 2.5
    assert task.auc(model.decision_function(task.test)) >= 0.99


@pytest.mark.slow
def test_shrinks_to_a_planted_patch_from_a_larger_start() -> None:
    task = planted_patch(size=0.01, texture="brick", seed=2)
    model = STSSAD("paper", CutDiff(sizes=[0.1]), seed=2)
    model.fit(task.train, task.pool)
    assert 1 / 2.5 < model.learned_["size"] / 0.01 < 2.5
    assert task.auc(model.decision_function(task.test)) >= 0.99
