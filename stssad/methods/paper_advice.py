"""What a user should know about the restarts of the paper's method."""

import math

import numpy as np

from .paper_candidate import PaperCandidate

# Below this rank correlation of their scores on the pool, two restarts have found different things.
AGREEMENT = 0.5


def about_restarts(candidates: list[PaperCandidate], chosen: int) -> list[str]:
    """Warnings about the paper's restarts, the gravest first."""
    return [*_about_learning(candidates), *_about_agreement(candidates, chosen)]


def _about_learning(candidates: list[PaperCandidate]) -> list[str]:
    n_all, n_collapsed = len(candidates), sum(c.collapsed for c in candidates)
    if all(_never_fell(c) for c in candidates):
        return [
            "L_trn never fell: the detector could not tell augmented from normal images, so its "
            "scores mean little. Train longer (--warm-start-epochs), or use larger images "
            "(--image-size)."
        ]
    if n_collapsed == n_all:
        return [
            "Every restart collapsed to the identity: the pool shows nothing that this "
            "augmentation can imitate, or too few anomalies. Try --augmentation rotation, or a "
            "pool with more."
        ]
    if n_collapsed:
        numbers = ", ".join(str(c.number + 1) for c in candidates if c.collapsed)
        return [
            f"{n_collapsed} of {n_all} restarts (number {numbers}) collapsed to the identity and "
            "were passed over; nothing to do unless the others look wrong too."
        ]
    return []


def _never_fell(c: PaperCandidate) -> bool:
    return min([*c.warm_losses, *(r.train_loss for r in c.history)]) > 0.9 * math.log(2)


def _about_agreement(candidates: list[PaperCandidate], chosen: int) -> list[str]:
    mine = candidates[chosen]
    others = [c for c in candidates if c.number != chosen and not c.collapsed]
    apart = [c.number + 1 for c in others if rank_correlation(c, mine) < AGREEMENT]
    if not apart:
        return []
    numbers = ", ".join(map(str, apart))
    return [
        f"Restarts disagree: number {numbers} ranks the pool differently from the chosen number "
        f"{chosen + 1}. Look at the images that score highest before you trust the scores."
    ]


def rank_correlation(one: PaperCandidate, other: PaperCandidate) -> float:
    """Spearman's, of the two restarts' scores on the pool."""
    ranks = [np.argsort(np.argsort(c.pool_scores)) for c in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
