"""What a saved model says about itself, without building it: for the report and the terminal."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..registry import METHODS
from ..scoring.contamination import Contamination
from ..scoring.evidence import Evidence
from ..scoring.lesson import Lesson
from ..scoring.threshold import ScoreArray, borderline, p_values
from ..storage.files import intact, read_tensors
from .folder import RunFolder
from .saved_model import ADVICE, read_content


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
    threshold: float
    false_alarms: float
    floor: float  # the least score there can be
    contamination: Contamination | None
    warnings: list[str]
    normal_scores: ScoreArray
    pool_scores: ScoreArray
    n_held_out: int

    @property
    def flagged(self) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        return self.pool_scores > self.threshold

    @property
    def expected(self) -> int:
        """Images of the pool that are anomalous, by the estimate."""
        if self.contamination is None or self.contamination.looks_clean:
            return 0
        return round(self.contamination.estimate * len(self.pool_scores))

    @property
    def border(self) -> float:
        """Images that score from here to the threshold are borderline."""
        return borderline(self.pool_scores, self.normal_scores, self.threshold, self.expected)

    @property
    def p_values(self) -> ScoreArray:
        return p_values(self.pool_scores, self.normal_scores)


def read_summary(folder: Path) -> Summary:
    files = RunFolder(folder)
    content, tensors = read_content(folder), read_tensors(files.weights, ADVICE)
    with intact(files.model, ADVICE):
        return summary_from(content, {name: t.numpy() for name, t in tensors.items()})


def summary_from(content: dict[str, Any], arrays: dict[str, Any]) -> Summary:
    summary, pool = content["summary"], content["pool"] or {"lesson": None, "contamination": None}
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
        false_alarms=content["set_false_alarms"],
        floor=-np.inf if summary["floor"] is None else summary["floor"],
        lesson=pool["lesson"] and Lesson(**pool["lesson"]),
        contamination=pool["contamination"] and Contamination(**pool["contamination"]),
        warnings=content["warnings"],
        normal_scores=arrays["normal_scores"],
        pool_scores=arrays.get("pool_scores", np.empty(0)),
        n_held_out=len(arrays["held_out_index"]),
    )
