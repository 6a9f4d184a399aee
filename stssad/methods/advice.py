"""What a user should know about a fit, each in one sentence with what to do about it."""

import math

import numpy as np
from torch import Tensor

from ..scoring.conditions import Difference
from .paper_candidate import PaperCandidate

FEW_IN_POOL = 30
FEW_NORMAL = 20
MUCH_LARGER = 4  # files than images, in pixels of a side
# Below this rank correlation of their scores on the pool, two restarts have found different things.
AGREEMENT = 0.5


def about_counts(n_pool: int | None, normal_scores: Tensor) -> list[str]:
    """Warnings about too few images; None: there was no pool."""
    words, n_normal = [], len(normal_scores)
    if n_pool is None:
        words.append(
            "No unlabeled images were given, so nothing was tuned: the scores are the encoder's "
            "alone. Pass a pool to tune to its anomalies."
        )
    elif n_pool < FEW_IN_POOL:
        words.append(
            f"The pool is tiny: {n_pool} images say little about the anomalies to tune to. "
            f"Add unlabeled images, at least {FEW_IN_POOL}."
        )
    if n_normal < FEW_NORMAL:
        words.append(
            f"Only {n_normal} normal images set the threshold, so it is a rough guess. "
            "Add normal images, or set your own threshold from the scores."
        )
    return words


def about_conditions(found: list[Difference]) -> list[str]:
    """Warnings where the pool was photographed otherwise than the normal images."""
    return [_about_condition(each) for each in found]


def _about_condition(d: Difference) -> str:
    more = d.pool > d.normal
    if d.name == "brightness":
        how = "brighter" if more else "darker"
        told = f"mean grey {255 * d.pool:.0f} against {255 * d.normal:.0f}"
    elif d.name == "colour":
        how = "bluer" if more else "redder"
        told = f"blue less red {255 * d.pool:+.0f} against {255 * d.normal:+.0f}"
    else:
        ratio = math.exp(d.pool - d.normal)
        words = {"contrast": ("richer in contrast", "flatter"), "sharpness": ("sharper", "blurred")}
        how, told = words[d.name][0 if more else 1], f"{d.name} {ratio:.2f} times the usual"
    return (
        f"{100 * d.share:.0f} % of the pool are {how} than normal images are ({told}, all over the "
        "image). That looks like other light, camera or focus rather than a defect; if such images "
        "are normal, add some to the normal folder."
    )


def about_size(file_side: int | None, image_size: int) -> list[str]:
    """A warning where files are much larger than what is looked at."""
    if file_side is None or file_side < MUCH_LARGER * image_size:
        return []
    seen = 4 * file_side / image_size
    return [
        f"The files are {file_side} pixels wide and are looked at with {image_size}: a defect "
        f"smaller than about {seen:.0f} of the file's pixels may vanish. Crop to what matters, or "
        f"use larger images (--image-size {min(4 * image_size, 2048) // 2})."
    ]


def about_unreadable(paths: list[str]) -> list[str]:
    """Names every file that a fit has left out."""
    if not paths:
        return []
    names = ", ".join(map(repr, paths))
    return [f"{len(paths)} file(s) could not be read and were left out: {names}."]


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
