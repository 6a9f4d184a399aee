"""Warnings that a user can act on."""

import math
from dataclasses import replace

import pytest
import torch

from stssad.methods.advice import about_counts
from stssad.methods.paper_advice import about_restarts
from stssad.methods.paper_candidate import PaperCandidate
from stssad.tuning.tuner import Record

GOOD = PaperCandidate(
    number=0,
    augmentation="CutDiff",
    initial={},
    learned={},
    a=[],
    score_variance=1.0,
    pool_scores=[1.0, 2.0, 3.0, 4.0],
    best_iteration=0,
    train_loss=0.01,
    val_loss=1.0,
    final_train_loss=0.01,
    warm_losses=[0.6, 0.1],
    history=[Record(0, 0.01, 1.0, [], {}, [], [], 0, 0, 0)],
    seconds=1.0,
    embedding_change=2.0,
)
COLLAPSED = replace(GOOD, number=1, final_train_loss=math.log(2))
NEVER = replace(
    COLLAPSED, warm_losses=[0.7, 0.69], history=[Record(0, 0.69, 1.0, [], {}, [], [], 0, 0, 0)]
)
APART = replace(GOOD, number=2, pool_scores=[4.0, 3.0, 2.0, 1.0])


@pytest.mark.parametrize(
    "candidates,n_pool,n_held_out,words",
    [
        ([GOOD, replace(GOOD, number=1)], 100, 40, []),
        ([GOOD, COLLAPSED], 100, 40, ["1 of 2 restarts (number 2) collapsed"]),
        ([replace(COLLAPSED, number=0), COLLAPSED], 100, 40, ["Every restart collapsed"]),
        ([replace(NEVER, number=0), NEVER], 100, 40, ["L_trn never fell"]),
        ([GOOD, replace(GOOD, number=1), APART], 100, 40, ["Restarts disagree: number 3"]),
        ([GOOD], 12, 40, ["The pool is tiny: 12 images"]),
        ([GOOD], 100, 7, ["Only 7 normal images set the threshold"]),
    ],
)
def test_each_warning_is_given_when_it_is_due(
    candidates: list[PaperCandidate], n_pool: int, n_held_out: int, words: list[str]
) -> None:
    given = [*about_restarts(candidates, 0), *about_counts(n_pool, torch.zeros(n_held_out))]
    assert len(given) == len(words)
    assert all(text.startswith(start) for text, start in zip(given, words, strict=True))


def test_a_fit_without_a_pool_says_that_nothing_was_tuned() -> None:
    (given,) = about_counts(None, torch.zeros(40))
    assert given.startswith("No unlabeled images were given, so nothing was tuned")
