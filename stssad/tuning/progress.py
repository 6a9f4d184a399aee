"""What a fit does, for whoever shows progress: a stage of it, or a restart of the tuning."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


class Phase(Enum):
    """What takes a fit's time."""

    ENCODING = "encoding"
    SCORING = "scoring"
    TUNING = "tuning"


class Stage(Enum):
    """A step of a fit that is no restart: its label, and the phase that it belongs to."""

    NORMAL = "encoding normal images", Phase.ENCODING
    RELIT = "encoding them in other light", Phase.ENCODING
    POOL = "encoding the pool", Phase.ENCODING
    SCORE = "fitting the score", Phase.SCORING

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def phase(self) -> Phase:
        return self.value[1]


@dataclass(frozen=True)
class StageEvent:
    """How far a stage is."""

    stage: Stage
    n_done: int
    n_most: int

    @property
    def label(self) -> str:
        return self.stage.label

    @property
    def phase(self) -> Phase:
        return self.stage.phase


@dataclass(frozen=True)
class RestartEvent:
    """What a restart has just done."""

    number: int  # counts from 0
    augmentation: str  # its type
    n_done: int
    n_most: int
    losses: dict[str, float] = field(default_factory=dict)
    learned: dict[str, float] = field(default_factory=dict)  # empty during a warm start

    @property
    def label(self) -> str:
        return f"restart {self.number + 1} ({self.augmentation})"

    @property
    def phase(self) -> Phase:
        return Phase.TUNING


Event = StageEvent | RestartEvent
Notify = Callable[[Event], None]
