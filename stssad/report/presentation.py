"""How each method's tuning is told: its table of restarts, its curves, its explanations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..methods.frozen_restart import PretrainedCandidate
from ..methods.paper_candidate import PaperCandidate
from ..scoring.evidence import LEVEL
from ..summary import Summary
from ..words import in_words

Curve = tuple[list[int], list[float]]  # iterations and values; a warm start is before 0


@dataclass(frozen=True)
class Presentation:
    """Chosen once, by the method's name."""

    scores: Callable[[Summary], str]
    tuning: str
    row: Callable[[Any], dict[str, str]]
    curves: dict[str, Callable[[Any], Curve]]
    captions: dict[str, str]  # of the curves
    evidence: Callable[[Summary], str]
    fits: Callable[[Summary], bool]  # whether an augmentation was found that resembles anything


def paper_scores(s: Summary) -> str:
    if s.n_held_out:
        return (
            f"{s.n_held_out} normal images were held out: the detector never saw them, so new "
            "normal images will score like them."
        )
    return "Nothing was held out; the normal scores are cross-fitted, and a little too small."


def paper_row(c: PaperCandidate) -> dict[str, str]:
    return {
        "from": in_words(c.initial),
        "learned": in_words(c.learned),
        "L_trn": f"{c.train_loss:.3f}",
        "L_val": f"{c.val_loss:.3f}",
        "best iteration": f"{c.best_iteration + 1} of {len(c.history)}",
        "score variance": f"{c.score_variance:.3g}",
        "seconds": f"{c.seconds:.0f}",
        "": "collapsed" if c.collapsed else "",
    }


def train_curve(c: PaperCandidate) -> Curve:
    xs = [*range(-len(c.warm_losses), 0), *(r.iteration for r in c.history)]
    return xs, [*c.warm_losses, *(r.train_loss for r in c.history)]


def val_curve(c: PaperCandidate | PretrainedCandidate) -> Curve:
    return [r.iteration for r in c.history], [r.val_loss for r in c.history]


PAPER = Presentation(
    scores=paper_scores,
    tuning="From each initial value the augmentation is tuned by gradient. The restart whose "
    "scores on the pool vary most is chosen; one that collapsed, so that the detector can't tell "
    "augmented from normal, is passed over.",
    row=paper_row,
    curves={"L_trn": train_curve, "L_val": val_curve},
    captions={
        "L_trn": "The detector's training loss; the warm start is before 0. It should fall and "
        "stay low.",
        "L_val": "How well training plus augmented images match the pool.",
    },
    evidence=lambda s: "",
    fits=lambda s: not all(c.collapsed for c in s.candidates),
)


def pretrained_scores(s: Summary) -> str:
    unseen = "Each normal image was scored by a fit to the others"
    if s.n_held_out:
        unseen = f"{s.n_held_out} normal images were held out"
    return (
        "A score says by how many standard deviations an image is more anomalous than the usual "
        "normal one (on a logarithmic scale): its embedding as a whole, and its highest-scoring "
        f"patches. {unseen}, so new ones will score like them."
    )


def pretrained_row(c: PretrainedCandidate) -> dict[str, str]:
    return {
        "type": c.augmentation,
        "from": in_words(c.initial),
        "learned": in_words(c.learned),
        "J": f"{c.alignment:.2f}",
        "seconds": f"{c.seconds:.0f}",
        "": "",
    }


def pretrained_evidence(s: Summary) -> str:
    """Whether the pool bears out what was learned."""
    found = s.evidence
    if found is None:
        return ""
    what = f"{s.noun} ({s.learned['type']})"
    numbers = f"J = {found.alignment:.2f}, p = {found.p_value:.2g}"
    tested = f"the two halves of the images that tested it chose {' and '.join(found.tested)}"
    if found.fits:
        return (
            f"The pool's most unusual images have moved the way that {what} moves images, further "
            f"than by chance ({numbers}; {tested}). {lesson_in_words(s)}"
        )
    return (
        f"No augmentation fits: along the shift of the best, {what}, the pool has moved no further "
        f"than normal images may by chance ({numbers}, at most {LEVEL:g} is asked for; {tested}). "
        f"{lesson_in_words(s)}"
    )


def lesson_in_words(s: Summary) -> str:
    """What the score has learned from the pool."""
    if s.lesson is None or s.lesson.weight == 0:
        return "The scores are the encoder's alone."
    return (
        f"{s.lesson.n_outliers} images of the pool are outliers among normal ones, and agree on a "
        f"direction (mean cosine of pairs {s.lesson.agreement:.2f}): scores are up-weighted along "
        "it."
    )


PRETRAINED = Presentation(
    scores=pretrained_scores,
    tuning="From each initial value of each augmentation type, the augmentation is tuned by "
    "gradient until it moves images the way the pool's most unusual ones have moved: J is the "
    "cosine between the two shifts, 1 at best. The restart with the largest J is chosen. Then each "
    "half of the images chooses and tunes again, and the other half tests the result: that is p, "
    "how often a clean pool would show as much.",
    row=pretrained_row,
    curves={"loss": val_curve},
    captions={"loss": "What is minimised (1 - J), from every restart; the chosen one is bold."},
    evidence=pretrained_evidence,
    fits=lambda s: s.evidence is not None and s.evidence.fits,
)

PRESENTATIONS = {"paper": PAPER, "pretrained": PRETRAINED}


def evidence_in_words(s: Summary) -> str:
    return PRESENTATIONS[s.method].evidence(s)


def headline(s: Summary) -> str:
    """What to do, in a user's words."""
    n, flagged = len(s.pool_scores), int(s.flagged.sum())
    if s.contamination is None:
        return "Fitted to normal images alone."
    few = s.expected - flagged
    if s.contamination.looks_clean and flagged == 0:
        return f"None of {n} images is flagged; the pool looks clean."
    if few > 0:
        check = f"check these {few}" if few > 1 else "check the next one"
        return f"{flagged} of {n} flagged; about {s.expected} look unusual: {check}."
    between = int(((s.pool_scores > s.border) & ~s.flagged).sum())
    more = f" {between} more {'is' if between == 1 else 'are'} borderline." if between else ""
    return f"{flagged} of {n} flagged.{more}"


def finding(s: Summary) -> str:
    """What was found, in one or two sentences."""
    if s.contamination is None:
        return "Fitted to normal images alone."
    n, flagged = len(s.pool_scores), int(s.flagged.sum())
    about = s.contamination.in_words()
    count = f"{flagged} of its {n} images score above the threshold"
    expected = round(s.contamination.estimate * n)
    if expected > flagged and not s.contamination.looks_clean:
        few = expected - flagged
        ranks = f"{flagged + 1} to {expected}" if few > 1 else f"{expected}"
        count += (
            f", and about {few} more are probably just below it: look at rank{'s' * (few > 1)} "
            f"{ranks}"
        )
    if s.contamination.looks_clean:
        return f"{about[0].upper()}{about[1:]}; {count}."
    kind = "No augmentation was found that resembles them."
    if PRESENTATIONS[s.method].fits(s):
        kind = f"The augmentation that fits them best is {s.noun}: {learned_words(s)}."
    return f"{about[0].upper()}{about[1:]}; {count}. {kind}"


def learned_words(s: Summary) -> str:
    return in_words({name: value for name, value in s.learned.items() if name != "type"})
