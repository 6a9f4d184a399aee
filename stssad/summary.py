"""What a saved model says about itself, without building it: for the report and the terminal."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .registry import METHODS
from .saved_model import read_content
from .scoring.contamination import Contamination
from .scoring.evidence import Evidence
from .scoring.threshold import ScoreArray, p_values


@dataclass(frozen=True)
class Summary:
    """Numbers and words of a finished run."""

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
    def p_values(self) -> ScoreArray:
        return p_values(self.pool_scores, self.normal_scores)


def read_summary(folder: Path) -> Summary:
    from safetensors import safe_open

    content = read_content(folder)
    words, evidence = content["summary"], content["evidence"]
    with safe_open(folder / "model.safetensors", "np") as file:
        names = set(file.keys())
        normal, held_out = file.get_tensor("normal_scores"), file.get_tensor("held_out_index")
        pool = file.get_tensor("pool_scores") if "pool_scores" in names else np.empty(0)
    return Summary(
        method=content["method"],
        seed=content["seed"],
        settings=content["settings"],
        encoder=content["encoder"]["class"],
        types=[a["class"] for a in content["augmentation"]],
        learned=words["learned"],
        noun=words["noun"],
        candidates=[METHODS[content["method"]].candidate(c) for c in content["candidates"]],
        chosen=content["chosen"],
        evidence=evidence and Evidence(**{**evidence, "tested": tuple(evidence["tested"])}),
        threshold=words["threshold"],
        false_alarms=content["set_false_alarms"],
        floor=-np.inf if words["floor"] is None else words["floor"],
        contamination=words["contamination"] and Contamination(**words["contamination"]),
        warnings=content["warnings"],
        normal_scores=normal,
        pool_scores=pool,
        n_held_out=len(held_out),
    )
