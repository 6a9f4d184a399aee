"""The result of a fit in words, and how each method describes its scores and its tuning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..augment.learned import format_learned
from ..methods.frozen_restart import PretrainedCandidate
from ..methods.paper_candidate import PaperCandidate
from ..runs.summary import Summary
from ..scoring.evidence import LEVEL
from ..scoring.pool_auc import AHEAD_OF
from ..scoring.pool_part import Trial

Curve = tuple[list[int], list[float]]  # iterations and values; a warm start is before 0


@dataclass(frozen=True)
class Description:
    """Of one method, for its page; chosen once, by the method's name."""

    format_scores: Callable[[Summary], str]
    tuning: str
    format_row: Callable[[Any], dict[str, str]]  # of the table of restarts
    curves: dict[str, Callable[[Any], Curve]]
    captions: dict[str, str]  # of the curves
    format_evidence: Callable[[Summary], str]
    is_resembled: Callable[[Summary], bool]  # whether an augmentation resembles the anomalies


def format_paper_scores(s: Summary) -> str:
    if s.n_held_out:
        return (
            f"{s.n_held_out} normal images were held out of training, so new normal images should "
            "score like them."
        )
    return "No images were held out; the normal scores are cross-fitted, and slightly too small."


def format_paper_row(c: PaperCandidate) -> dict[str, str]:
    return {
        "from": format_learned(c.initial),
        "learned": format_learned(c.learned),
        "L_trn": f"{c.train_loss:.3f}",
        "L_val": f"{c.val_loss:.3f}",
        "best iteration": f"{c.best_iteration + 1} of {len(c.history)}",
        "score variance": f"{c.score_variance:.3g}",
        "seconds": f"{c.seconds:.0f}",
        "": "collapsed" if c.collapsed else "",
    }


def list_train_losses(c: PaperCandidate) -> Curve:
    xs = [*range(-len(c.warm_losses), 0), *(r.iteration for r in c.history)]
    return xs, [*c.warm_losses, *(r.train_loss for r in c.history)]


def list_val_losses(c: PaperCandidate | PretrainedCandidate) -> Curve:
    return [r.iteration for r in c.history], [r.val_loss for r in c.history]


PAPER = Description(
    format_scores=format_paper_scores,
    tuning="From each initial value the augmentation is tuned by gradient descent. The restart "
    "whose scores vary most over the pool is chosen; restarts that collapsed, where the detector "
    "can't tell augmented from normal images, are ignored.",
    format_row=format_paper_row,
    curves={"L_trn": list_train_losses, "L_val": list_val_losses},
    captions={
        "L_trn": "The detector's training loss; the warm start is before 0. It should fall and "
        "stay low.",
        "L_val": "The distance between the pool and the training and augmented images.",
    },
    format_evidence=lambda s: "",
    is_resembled=lambda s: not all(c.collapsed for c in s.candidates),
)


def format_pretrained_scores(s: Summary) -> str:
    unseen = "Each normal image was scored by a fit to the others"
    if s.n_held_out:
        unseen = f"{s.n_held_out} normal images were held out"
    return (
        "Scores combine the distance of the image embedding and of its most unusual patches from "
        "the normal ones, in standard deviations of the normal images' (logarithmic) distances. "
        f"{unseen}, so new normal images should score alike."
    )


def format_pretrained_row(c: PretrainedCandidate) -> dict[str, str]:
    return {
        "type": c.augmentation,
        "from": format_learned(c.initial),
        "learned": format_learned(c.learned),
        "J": f"{c.alignment:.2f}",
        "seconds": f"{c.seconds:.0f}",
        "": "",
    }


def format_pretrained_evidence(s: Summary) -> str:
    """Whether the pool supports the learned augmentation."""
    evidence = s.evidence
    if evidence is None:
        return format_lesson(s)
    what = f"{s.noun} ({s.learned['type']})"
    numbers = f"J = {evidence.alignment:.2f}, p = {evidence.p_value:.2g}"
    tested = f"tuned on each half of the images, the test chose {' and '.join(evidence.tested)}"
    if evidence.fits:
        return (
            f"The mean shift of the pool's most unusual images aligns with that of {what}, more "
            f"than by chance ({numbers}; {tested}). {format_lesson(s)}"
        )
    return (
        f"No augmentation fits: the pool's mean shift aligns with that of the best, {what}, no "
        f"more than normal images' may by chance ({numbers}, above {LEVEL:g}; {tested}). "
        f"{format_lesson(s)}"
    )


def format_lesson(s: Summary) -> str:
    """What the scores have learned from the pool: from its outliers, and from all of it."""
    if s.lesson is None or s.lesson.weight == 0:
        return "" if s.trial is None else format_trial(s.trial, "no direction")
    of_outliers = (
        f"{s.lesson.n_outliers} images of the pool are outliers that share a direction (mean "
        f"cosine of pairs {s.lesson.agreement:.2f}): scores are up-weighted along it."
    )
    if s.trial is None or not (s.trial.is_taught or s.trial.is_refused):
        return of_outliers
    return f"{of_outliers} {format_trial(s.trial, 'no further direction')}"


def format_trial(trial: Trial, nothing: str) -> str:
    """Whether the pool taught a direction, and why not."""
    gain, p_value = trial.gain, f"p = {max(trial.gain.p_value, 1e-99):.1g}"
    if trial.by_labels:
        return (
            "The direction that the pool had taught the scores was learned again with the labels."
        )
    if trial.is_taught:
        return (
            f"The pool taught the scores a direction: {100 * gain.after:.1f} % of its images, "
            f"instead of {100 * gain.before:.1f} %, now score above {AHEAD_OF} normal images drawn "
            f"at random ({p_value}, on images that had no part in it)."
        )
    if trial.is_refused and trial.differs:
        return (
            f"The pool taught the scores {nothing}: some of it was taken in other light or focus "
            "(see the warning), and a direction would show that."
        )
    if trial.is_refused:
        return (
            f"The pool taught the scores {nothing}: along the one that was found, hardly any of "
            "its images lie where the lowest quarter of the normal ones do, so not only its "
            "anomalies differ. Were both recorded in the same way?"
        )
    return f"The pool taught the scores {nothing} ({p_value})."


PRETRAINED = Description(
    format_scores=format_pretrained_scores,
    tuning="From each initial value of each augmentation type, the augmentation is tuned by "
    "gradient descent until its mean shift aligns with that of the pool's most unusual images: J "
    "is the cosine between the two, 1 at best. The restart with the largest J is chosen. Then one "
    "half of the images chooses and tunes again, the other half tests the result, and vice versa: "
    "p is how often a clean pool would align as well.",
    format_row=format_pretrained_row,
    curves={"loss": list_val_losses},
    captions={
        "loss": "The loss that is minimised (1 - J), of every restart; the chosen one is bold."
    },
    format_evidence=format_pretrained_evidence,
    is_resembled=lambda s: s.evidence is not None and s.evidence.fits,
)

DESCRIPTIONS = {"paper": PAPER, "pretrained": PRETRAINED}


def format_evidence(s: Summary) -> str:
    return DESCRIPTIONS[s.method].format_evidence(s)


def format_headline(s: Summary) -> str:
    """The result in a line: how many are flagged, and how many more deserve a look."""
    n, flagged = len(s.pool_scores), int(s.flagged.sum())
    if s.contamination is None:
        return "Fitted to normal images alone."
    count = f"{flagged or 'None'} of {n} {'is' if flagged < 2 else 'are'} flagged"
    return f"{count}, {s.n_borderline} more to check." if s.n_borderline else f"{count}."


def format_decision(s: Summary) -> str:
    """What the thresholds promise, of the pool and of new images."""
    new = format_rate(s.false_alarms)
    discoveries, score = s.decision.false_discoveries, format_score(s.pool_threshold)
    if s.decision.score is not None or discoveries is None or s.contamination is None:
        return f"The threshold, {score}, flags about {new} of normal images."
    pool = (
        f"The pool's threshold, {score}, is set so that about {format_rate(discoveries)} of the "
        "flagged images may be normal (false discoveries)"
    )
    if s.threshold == s.pool_threshold:
        return f"{pool}; it holds for new images, too, and flags about {new} of normal ones."
    return f"{pool}; that for new images, {format_score(s.threshold)}, flags about {new} of them."


def format_prices(prices: Sequence[tuple[float, int]]) -> str:
    """How many images each false alarm rate would flag."""
    counts = ", ".join(f"at {format_rate(rate)} {n}" for rate, n in prices)
    return f"Flagged by false alarm rate: {counts}."


def format_share(s: Summary) -> str:
    """How much of the pool is anomalous, and whether the flags agree with that."""
    share = s.contamination
    assert share is not None
    n, flagged = len(s.pool_scores), int(s.flagged.sum())
    about = share.summarise()
    sentence = f"{about[0].upper()}{about[1:]}"
    if flagged > share.high * n:
        return f"{sentence}, so many of the {flagged} flagged images are probably normal."
    if share.looks_clean and flagged:
        return f"{sentence}: look whether the flagged {'one is' if flagged == 1 else 'ones are'}."
    return f"{sentence}."


def format_finding(s: Summary) -> str:
    """The result in a few sentences."""
    if s.contamination is None:
        return "Fitted to normal images alone."
    sentences = [format_headline(s), format_share(s), format_prices(s.prices)]
    if not s.contamination.looks_clean:
        augmentation = "No augmentation was found that resembles the anomalies."
        if DESCRIPTIONS[s.method].is_resembled(s):
            learned = format_parameters(s)
            augmentation = f"The augmentation that fits them best is {s.noun}: {learned}."
        sentences.append(augmentation)
    return " ".join(sentences)


def format_rate(share: float) -> str:
    return f"{100 * share:.2g} %"


def format_score(score: float) -> str:
    return f"{score:,.0f}" if abs(score) >= 1000 else f"{score:.4g}"


def format_parameters(s: Summary) -> str:
    return format_learned({name: value for name, value in s.learned.items() if name != "type"})
