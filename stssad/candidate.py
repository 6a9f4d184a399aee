"""What one start came to, and the choice between several."""

import math
from dataclasses import dataclass
from typing import Any

from .augment import Augmentation
from .settings import Settings
from .starts import Finished
from .tuner import Record, smoothed

# A start whose L_trn ends above this share of ln 2 is hardly better than tossing a coin.
COLLAPSED_SHARE = 0.9


@dataclass(frozen=True)
class Candidate:
    """What one start came to."""

    start: int
    initial: dict[str, float]
    learned: dict[str, float]
    a: list[float]
    score_variance: float
    pool_scores: list[float]
    best_iteration: int
    train_loss: float  # L_trn and L_val around the best state, smoothed
    val_loss: float
    final_train_loss: float  # L_trn over the last iterations
    warm_losses: list[float]
    history: list[Record]
    seconds: float
    family: str = ""  # the augmentation's class
    # Where the encoder stays as it is: J, and the paper's L_val without training.
    alignment: float | None = None
    mean_distance: float | None = None

    @property
    def collapsed(self) -> bool:
        """The augmentation has shrunk to the identity, or the detector never learned to see it."""
        return max(self.train_loss, self.final_train_loss) > COLLAPSED_SHARE * math.log(2)

    @staticmethod
    def of(finished: Finished, augmentation: Augmentation, settings: Settings) -> "Candidate":
        best, imitation = finished.best, finished.imitation
        return Candidate(
            start=finished.start,
            family=type(augmentation).__name__,
            initial=augmentation.describe(finished.initial_a),
            learned=augmentation.describe(best.a),
            a=best.a.tolist(),
            score_variance=finished.score_variance,
            pool_scores=finished.pool_scores.tolist(),
            best_iteration=best.iteration,
            train_loss=best.train_loss,
            val_loss=best.loss - best.train_loss,
            final_train_loss=smoothed(finished.history, settings.smoothing)[0],
            warm_losses=finished.warm_losses,
            history=finished.history,
            seconds=finished.seconds,
            alignment=imitation.alignment if imitation else None,
            mean_distance=imitation.mean_distance if imitation else None,
        )

    @staticmethod
    def from_json(facts: dict[str, Any]) -> "Candidate":
        return Candidate(**{**facts, "history": [Record(**r) for r in facts["history"]]})


def choose(candidates: list[Candidate]) -> int:
    """The start with the largest score variance (Sec. 4.3); a collapsed one only if all are.

    Where the encoder stays as it is, the one that is aligned best (docs/beyond-the-paper.md).
    """
    if all(c.alignment is not None for c in candidates):
        return max(candidates, key=lambda c: c.alignment or 0.0).start
    learned = [c for c in candidates if not c.collapsed] or candidates
    return max(learned, key=lambda c: c.score_variance).start
