"""What one restart of the paper's method came to, and the choice between several."""

import math
from dataclasses import dataclass
from typing import Any

from ..augment import Augmentation
from ..scoring.gaussian import score_variance
from ..settings import Settings
from ..tuning.descent import smoothed
from ..tuning.tuner import Record, TunerState

# A restart whose L_trn ends above this share of ln 2 is hardly better than tossing a coin.
COLLAPSED_SHARE = 0.9
# One whose augmentation moves an embedding by less than this, in distances between two normal
# images, hardly changes them.
LEAST_CHANGE = 0.5


@dataclass(frozen=True)
class PaperCandidate:
    """What one restart came to."""

    number: int
    augmentation: str  # its type
    initial: dict[str, float]
    learned: dict[str, float]
    a: list[float]
    score_variance: float
    pool_scores: list[float]
    best_iteration: int
    train_loss: float  # L_trn and L_val around the state that it ends with, smoothed
    val_loss: float
    final_train_loss: float  # L_trn over the last updates
    warm_losses: list[float]
    history: list[Record]
    seconds: float
    embedding_change: float  # by the augmentation, in distances between two normal images

    @property
    def collapsed(self) -> bool:
        """The augmentation has become the identity, or the detector never learned to see it."""
        unseen = max(self.train_loss, self.final_train_loss) > COLLAPSED_SHARE * math.log(2)
        return unseen or self.embedding_change < LEAST_CHANGE

    @staticmethod
    def of(
        number: int,
        augmentation: Augmentation,
        state: TunerState,
        pool_scores: Any,
        settings: Settings,
        initial_a: Any,
        seconds: float,
        embedding_change: float,
    ) -> "PaperCandidate":
        """Of a restart whose state has settled."""
        best = state.best
        assert best is not None, "tune keeps a best state"
        of_iterations = [r.train_loss for r in state.history]
        at_the_end = smoothed(state.final_losses or of_iterations, settings.smoothing)
        val_losses = [r.val_loss for r in state.history]
        is_best = settings.end_state == "best"
        kept_loss = best.train_loss if is_best else smoothed(of_iterations, settings.smoothing)
        return PaperCandidate(
            number=number,
            augmentation=type(augmentation).__name__,
            initial=augmentation.describe(initial_a),
            learned=augmentation.describe(state.a),
            a=state.a.tolist(),
            score_variance=score_variance(pool_scores),
            pool_scores=pool_scores.tolist(),
            best_iteration=best.iteration if is_best else len(state.history) - 1,
            train_loss=at_the_end if state.final_losses else kept_loss,
            val_loss=(
                best.loss - best.train_loss if is_best else smoothed(val_losses, settings.smoothing)
            ),
            final_train_loss=at_the_end,
            warm_losses=state.warm_losses,
            history=state.history,
            seconds=seconds,
            embedding_change=embedding_change,
        )

    @staticmethod
    def from_json(content: dict[str, Any]) -> "PaperCandidate":
        history = [Record(**r) for r in content["history"]]
        return PaperCandidate(**{**content, "history": history})


def choose(candidates: list[PaperCandidate]) -> int:
    """The largest score variance (Eq. 4); a collapsed restart only if all are."""
    learned = [c for c in candidates if not c.collapsed] or candidates
    return max(learned, key=lambda c: c.score_variance).number
