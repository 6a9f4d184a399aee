"""What a saved model says about itself, without building it: for the report and the terminal."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..registry import METHODS
from ..scoring.contamination import Contamination
from ..scoring.decision import Decision, Thresholds, flagged_at
from ..scoring.evidence import Evidence
from ..scoring.false_discovery import q_values
from ..scoring.lesson import Lesson
from ..scoring.pool_part import Trial
from ..scoring.tail import NormalTail, ScoreArray
from ..scoring.threshold import borderline
from ..storage.files import intact, read_tensors
from .folder import RunFolder
from .saved_model import ADVICE, read_content, trial_in

NO_POOL = {"lesson": None, "trial": None, "contamination": None}


@dataclass(frozen=True)
class Summary:
    """Numbers and texts of a finished run."""

    method: str
    seed: int
    settings: dict[str, Any]
    encoder: str
    types: list[str]  # of the augmentations that were tried
    learned: dict[str, Any]
    noun: str  # what the chosen augmentation draws
    candidates: list[Any]
    chosen: int | None
    evidence: Evidence | None
    lesson: Lesson | None
    trial: Trial | None
    threshold: float  # of new images
    pool_threshold: float
    false_alarms: float  # that `threshold` keeps
    decision: Decision
    requested: Decision  # by the fit
    floor: float  # the least score there can be
    contamination: Contamination | None
    warnings: list[str]
    normal_scores: ScoreArray
    pool_scores: ScoreArray
    n_held_out: int

    @property
    def flagged(self) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        return self.pool_scores > self.pool_threshold

    @property
    def expected(self) -> int:
        """Images of the pool that are anomalous, by the estimate."""
        if self.contamination is None or self.contamination.looks_clean:
            return 0
        return round(self.contamination.estimate * len(self.pool_scores))

    @property
    def border(self) -> float:
        """Images that score from here to the threshold are borderline."""
        return borderline(self.pool_scores, self.tail, self.pool_threshold, self.expected)

    @property
    def p_values(self) -> ScoreArray:
        return self.tail.p_values(self.pool_scores)

    @property
    def q_values(self) -> ScoreArray:
        return q_values(self.p_values)

    @property
    def tail(self) -> NormalTail:
        return NormalTail.of(self.normal_scores)

    @property
    def prices(self) -> list[tuple[float, int]]:
        """False alarm rates, and how many images of the pool each would flag."""
        return flagged_at(self.pool_scores, self.tail)

    def pool_threshold_of(self, decision: Decision) -> float:
        """The pool's threshold by another decision."""
        pool = None if self.contamination is None else self.pool_scores
        return Thresholds.of(decision, self.tail, pool).pool

    @property
    def n_borderline(self) -> int:
        return int(((self.pool_scores > self.border) & ~self.flagged).sum())


def read_summary(folder: Path) -> Summary:
    files = RunFolder(folder)
    content, tensors = read_content(folder), read_tensors(files.weights, ADVICE)
    with intact(files.model, ADVICE):
        return summary_from(content, {name: t.numpy() for name, t in tensors.items()})


def summary_from(content: dict[str, Any], arrays: dict[str, Any]) -> Summary:
    summary, pool = content["summary"], content["pool"] or NO_POOL
    explanation = content["explanation"] or {"candidates": [], "chosen": None, "evidence": None}
    evidence = explanation["evidence"]
    return Summary(
        method=content["method"],
        seed=content["seed"],
        settings=content["settings"],
        encoder=content["encoder"]["class"],
        types=[a["class"] for a in content["augmentation"]],
        learned=summary["learned"],
        noun=summary["noun"],
        candidates=[METHODS[content["method"]].candidate(c) for c in explanation["candidates"]],
        chosen=explanation["chosen"],
        evidence=evidence and Evidence(**{**evidence, "tested": tuple(evidence["tested"])}),
        threshold=summary["threshold"],
        pool_threshold=summary["pool_threshold"],
        false_alarms=summary["false_alarms"],
        decision=Decision(**content["decision"]),
        requested=Decision(content["false_alarms"], content["false_discoveries"]),
        floor=-np.inf if summary["floor"] is None else summary["floor"],
        lesson=pool["lesson"] and Lesson(**pool["lesson"]),
        trial=trial_in(pool["trial"]),
        contamination=pool["contamination"] and Contamination(**pool["contamination"]),
        warnings=content["warnings"],
        normal_scores=arrays["normal_scores"],
        pool_scores=arrays.get("pool_scores", np.empty(0)),
        n_held_out=len(arrays["held_out_index"]),
    )
