"""From scores to flags: which rate is kept, of new images and of the pool, and at what price."""

import math
from dataclasses import dataclass
from typing import Literal

from .false_discovery import discovery_threshold
from .tail import NormalTail, ScoreArray

Sensitivity = Literal["low", "usual", "high"]
Source = Literal["rates", "hand", "labels"]  # of a threshold
PRICED = (0.005, 0.01, 0.02, 0.05)  # false alarm rates whose price is shown
FALSE_ALARMS, FALSE_DISCOVERIES = 0.01, 0.1


@dataclass(frozen=True)
class Decision:
    """The rates that thresholds are set for.

    false_alarms: of new normal images, the share that may be flagged.
    false_discoveries: of the pool's flagged images, the share that may be normal.
    Either may be None: then the other one's threshold holds for new images and pool alike. A
    `score` is a threshold itself, and holds for both; `source` says where it comes from.
    """

    false_alarms: float | None = FALSE_ALARMS
    false_discoveries: float | None = FALSE_DISCOVERIES
    score: float | None = None
    source: Source = "rates"

    @staticmethod
    def of(
        false_alarms: float | None, score: float | None, false_discoveries: float | None
    ) -> "Decision | None":
        """By one of the three; None by none."""
        given = [x for x in (false_alarms, score, false_discoveries) if x is not None]
        if not given:
            return None
        if len(given) > 1:
            raise ValueError("give one of false_alarms, score and false_discoveries")
        if score is None:
            return Decision(false_alarms, false_discoveries)
        if not math.isfinite(score):
            raise ValueError(f"a threshold must be a finite number, got {score}")
        return Decision(None, None, float(score), "hand")


@dataclass(frozen=True)
class Thresholds:
    """Scores above them are flagged: of new images, and of the pool."""

    new: float
    pool: float
    false_alarms: float  # of new normal images, the share that `new` flags

    @staticmethod
    def of(decision: Decision, normal: NormalTail, pool: ScoreArray | None) -> "Thresholds":
        if decision.score is not None:
            return Thresholds(decision.score, decision.score, normal.rate(decision.score))
        of_pool = None
        if decision.false_discoveries is not None and pool is not None:
            of_pool = discovery_threshold(pool, normal, decision.false_discoveries)
        if decision.false_alarms is not None:
            new = normal.threshold(decision.false_alarms)
            rate = max(decision.false_alarms, normal.lowest_rate)
            return Thresholds(new, new if of_pool is None else of_pool, rate)
        if of_pool is None:
            raise ValueError("a false discovery rate needs a pool; give a false alarm rate instead")
        return Thresholds(of_pool, of_pool, normal.rate(of_pool))


SENSITIVITIES: dict[Sensitivity, Decision] = {
    "low": Decision(0.005, 0.05),
    "usual": Decision(),
    "high": Decision(0.05, 0.3),
}


def flagged_at(scores: ScoreArray, normal: NormalTail) -> list[tuple[float, int]]:
    """How many images each false alarm rate flags."""
    return [(rate, int((scores > normal.threshold(rate)).sum())) for rate in PRICED]
