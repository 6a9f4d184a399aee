"""How a run's flags agree with people's labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runs.run import Run
from ..scoring.threshold import ScoreArray
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
        return f"{self.n_flagged} flagged; of the labelled, precision {precision}, recall {recall}"


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
    rate: float  # of false alarms, as requested before anybody labelled anything
    before: Agreement
    after: Agreement

    def content(self) -> dict[str, Any]:
        counts = {"n_good": self.n_good, "n_defects": self.n_defects, "rate": self.rate}
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


def find_labelled(run: Run, labels: Mapping[str, Label]) -> tuple[Index, Index]:
    """Numbers of the pool images that are labelled good, and defective."""
    number = {row.image_path: i for i, row in enumerate(run.predictions())}
    unknown = [name for name in labels if name not in number]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} is labelled, but isn't in the pool of {str(run.folder)!r}; names are "
            f"those of its {run.files.scores.name}"
        )
    good, defects = (
        np.array([number[x.image] for x in labels.values() if x.label == label], dtype=np.int64)
        for label in ("good", "defect")
    )
    return good, defects
