"""Several restarts, one by one or at once, and what they tell on their way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from ..processes import in_processes

Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True)
class Event:
    """What a restart has just done, for whoever shows progress; or another stage of a fit."""

    number: int  # counts from 0; of a stage, negative
    augmentation: str  # its type
    n_done: int
    n_most: int
    losses: dict[str, float]
    learned: dict[str, float]  # empty during a warm start
    stage: str = ""  # in words, where it is no restart

    @staticmethod
    def of_stage(number: int, stage: str, n_done: int, n_most: int) -> "Event":
        return Event(-1 - number, "", n_done, n_most, {}, {}, stage)


Notify = Callable[[Event], None]


class Restart(Protocol[Result]):
    """All that one restart depends on: the same gives the same result in any process."""

    def run(self, notify: Notify | None) -> Result: ...


def run_all(
    restarts: Sequence[Restart[Result]], n_processes: int, notify: Notify | None = None
) -> list[Result]:
    """All of them, in order; the result doesn't depend on the number of processes."""
    if n_processes == 1 or len(restarts) == 1:
        return [restart.run(notify) for restart in restarts]
    return in_processes(_run, restarts, n_processes, notify)


def _run(restart: Restart[Any], notify: Notify) -> Any:
    return restart.run(notify)


def own_seed(seed: int, number: int) -> int:
    """A seed for one restart alone, whatever runs beside it."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
