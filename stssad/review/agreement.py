"""How a run's flags agree with people's labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..methods.refit import FEWEST_DEFECTS
from ..runs.run import Run
from ..scoring.tail import ScoreArray
from .labels import Label
from .order import wilson_interval

Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Agreement:
    """How a model's flags agree with labels: counts, shares, and their intervals."""

    threshold: float
    n_flagged: int  # of the whole pool
    true: int  # defects that are flagged
    false: int  # good ones that are
    missed: int  # defects that aren't

    @property
    def precision(self) -> tuple[float, float, float]:
        return estimate_share(self.true, self.true + self.false)

    @property
    def recall(self) -> tuple[float, float, float]:
        return estimate_share(self.true, self.true + self.missed)

    def content(self) -> dict[str, Any]:
        return {**vars(self), "precision": self.precision, "recall": self.recall}

    def summarise(self) -> str:
        precision, recall = format_percent(*self.precision), format_percent(*self.recall)
        return f"{self.n_flagged} flagged; of the labeled, precision {precision}, recall {recall}"


def estimate_share(hits: int, n: int) -> tuple[float, float, float]:
    low, high = wilson_interval(hits, n)
    return (hits / n if n else float("nan")), low, high


def format_percent(share: float, low: float, high: float) -> str:
    if np.isnan(share):
        return "unknown"
    return f"{100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f})"


@dataclass(frozen=True)
class Comparison:
    """Before and after."""

    n_good: int
    n_defects: int
    before: Agreement
    after: Agreement

    def summarise(self) -> str:
        """What a refit has changed on the labeled images, and why nothing did."""
        before, after = self.before, self.after
        text = (
            f"Of {self.n_defects} image{'s' * (self.n_defects != 1)} labeled defect "
            f"{before.true} → {after.true} flagged; of {self.n_good} labeled good "
            f"{before.false} → {after.false} wrongly flagged; "
            f"{before.n_flagged} → {after.n_flagged} flagged in all."
        )
        if vars(before) != {**vars(after), "threshold": before.threshold}:
            return text
        if self.n_defects < FEWEST_DEFECTS:
            return f"{text} Nothing changed: the score learns from {FEWEST_DEFECTS} defects on."
        if not before.missed and not before.false:
            return f"{text} Nothing changed: the run agreed with all labels already."
        return f"{text} Nothing changed: the labeled images lie too far from the threshold."

    def content(self) -> dict[str, Any]:
        counts = {"n_good": self.n_good, "n_defects": self.n_defects}
        return {**counts, "before": self.before.content(), "after": self.after.content()}


def measure_agreement(
    scores: ScoreArray, threshold: float, good: Index, defects: Index
) -> Agreement:
    flagged = scores > threshold
    return Agreement(
        threshold=float(threshold),
        n_flagged=int(flagged.sum()),
        true=int(flagged[defects].sum()),
        false=int(flagged[good].sum()),
        missed=int((~flagged[defects]).sum()),
    )


def find_labeled(run: Run, labels: Mapping[str, Label]) -> tuple[Index, Index]:
    """Numbers of the pool images that are labeled good, and defective."""
    number = {row.image_path: i for i, row in enumerate(run.predictions())}
    unknown = [name for name in labels if name not in number]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} is labeled, but isn't in the pool of {str(run.folder)!r}; names are "
            f"those of its {run.files.scores.name}"
        )
    good, defects = (
        np.array([number[x.image] for x in labels.values() if x.label == label], dtype=np.int64)
        for label in ("good", "defect")
    )
    return good, defects
