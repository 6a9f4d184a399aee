"""What a user should know about a fit, each in one sentence with what to do about it."""

import math

import numpy as np

from .candidate import Candidate

FEW_IN_POOL = 30
FEW_HELD_OUT = 20
# Below this rank correlation of their scores on the pool, two starts have found different things.
AGREEMENT = 0.5


def advice(candidates: list[Candidate], chosen: int, n_pool: int, n_held_out: int) -> list[str]:
    """Warnings, the gravest first; empty if there are none."""
    return [
        *_about_learning(candidates),
        *_about_agreement(candidates, chosen),
        *_about_counts(n_pool, n_held_out),
    ]


def _about_learning(candidates: list[Candidate]) -> list[str]:
    n_all, n_collapsed = len(candidates), sum(c.collapsed for c in candidates)
    if all(_never_fell(c) for c in candidates):
        return [
            "L_trn never fell: the detector could not tell augmented from normal pictures, so its "
            "scores mean little. Train longer (--warm-start-epochs), or use larger pictures "
            "(--image-size)."
        ]
    if n_collapsed == n_all:
        return [
            "Every start collapsed to the identity: the pool shows nothing that this augmentation "
            "can imitate, or too few anomalies. Try --augmentation rotation, or a pool with more."
        ]
    if n_collapsed:
        numbers = ", ".join(str(c.start + 1) for c in candidates if c.collapsed)
        return [
            f"{n_collapsed} of {n_all} starts (number {numbers}) collapsed to the identity and "
            "were passed over; nothing to do unless the others look wrong too."
        ]
    return []


def _never_fell(c: Candidate) -> bool:
    return min([*c.warm_losses, *(r.train_loss for r in c.history)]) > 0.9 * math.log(2)


def _about_agreement(candidates: list[Candidate], chosen: int) -> list[str]:
    mine = candidates[chosen]
    if mine.alignment is not None:  # families differ by nature, and the evidence is told apart
        return []
    others = [c for c in candidates if c.start != chosen and not c.collapsed]
    apart = [c.start + 1 for c in others if rank_correlation(c, mine) < AGREEMENT]
    if not apart:
        return []
    numbers = ", ".join(map(str, apart))
    return [
        f"Starts disagree: number {numbers} ranks the pool differently from the chosen number "
        f"{chosen + 1}. Look at the pictures that score highest before you trust the scores."
    ]


def rank_correlation(one: Candidate, other: Candidate) -> float:
    """Spearman's, of the two starts' scores on the pool."""
    ranks = [np.argsort(np.argsort(c.pool_scores)) for c in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _about_counts(n_pool: int, n_held_out: int) -> list[str]:
    words = []
    if n_pool < FEW_IN_POOL:
        words.append(
            f"The pool is tiny: {n_pool} pictures say little about the anomalies to tune to. "
            f"Add unlabeled pictures, at least {FEW_IN_POOL}."
        )
    if n_held_out < FEW_HELD_OUT:
        words.append(
            f"Only {n_held_out} normal pictures set the threshold, so it is a rough guess. "
            "Add normal pictures, or set your own threshold from the scores."
        )
    return words
