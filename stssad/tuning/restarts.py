"""Several restarts, one by one or at once."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from ..parallel.processes import in_processes
from .progress import Notify

Result = TypeVar("Result", covariant=True)


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
