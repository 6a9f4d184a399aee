"""Runs cells, here or on a cluster, and hands over each result as it comes.

Labels are read here, once a method has given its scores, by `Task.auc`.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from ..testbeds.parts import Protocol
from ..testbeds.task import Task
from ..testbeds.testbed import find_testbed
from ..version import __version__
from .cell import Cell, Line
from .methods import Estimator, Method, Surroundings, method

Done = Callable[[list[Line]], None]


@dataclass(frozen=True)
class Unit:
    """Cells that are run together, since one fit may serve them all."""

    cells: tuple[Cell, ...]
    data: Path | None
    warm_starts: Path | None
    words: str = ""  # for the method, where its name alone doesn't find it

    @property
    def method(self) -> Method:
        return method(self.words or self.cells[0].method)


def units(
    cells: Iterable[Cell],
    data: Path | None,
    warm_starts: Path | None,
    words: Mapping[str, str] | None = None,
) -> list[Unit]:
    """Cells of a method that ignores the pool go together; the others are alone.

    In turn from each group with the same pictures and seed: two that run at once seldom need the
    same warm start. `words` finds methods that are a user's own, by their names.
    """
    words = words or {}
    groups: dict[tuple[Any, ...], list[list[Cell]]] = defaultdict(list)
    together: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        pictures = (cell.testbed, cell.task.split("/")[0] if cell.testbed == "svhn" else "")
        group = (*pictures, cell.protocol, cell.contamination, cell.seed)
        if method(words.get(cell.method, cell.method)).uses_pool:
            groups[group].append([cell])
            continue
        name = (*group, cell.preset, str(cell.changes), cell.method)
        if name not in together:
            together[name] = []
            groups[group].append(together[name])
        together[name].append(cell)
    ordered = in_turn(list(groups.values()))
    return [
        Unit(tuple(cells), data, warm_starts, words.get(cells[0].method, "")) for cells in ordered
    ]


def in_turn(groups: list[list[Any]]) -> list[Any]:
    longest = max((len(group) for group in groups), default=0)
    return [group[i] for i in range(longest) for group in groups if i < len(group)]


def run_unit(unit: Unit) -> list[Line]:
    """Fit, score, and only then look at the labels."""
    lines: list[Line] = []
    fitted: tuple[torch.Tensor, Estimator, float] | None = None
    for cell in unit.cells:
        bed = find_testbed(cell.testbed, unit.data)
        settings = bed.settings(cell.preset, **cell.changes)
        protocol = cast(Protocol, cell.protocol)
        task = bed.load(
            cell.task, cell.preset, settings.reading, protocol, cell.seed, cell.contamination
        )
        if fitted is None or not torch.equal(fitted[0], task.train):
            place = Surroundings(settings, bed.augmentation, cell.seed, unit.warm_starts)
            fitted = (task.train, *fit(unit.method.build(place), task))
        _, estimator, seconds = fitted
        auc = task.auc(estimator.decision_function(task.test))
        lines.append(line_of(cell, task, estimator, auc, seconds / len(unit.cells)))
    return lines


def fit(estimator: Estimator, task: Task) -> tuple[Estimator, float]:
    """All that a method sees of a task: normal pictures and the unlabeled pool."""
    began = time.perf_counter()
    estimator.fit(task.train, task.pool)
    return estimator, time.perf_counter() - began


def line_of(cell: Cell, task: Task, estimator: Estimator, auc: float, seconds: float) -> Line:
    return Line(
        cell=cell,
        auc=auc,
        seconds=round(seconds, 1),
        learned=rounded(getattr(estimator, "learned_", {})),
        version=__version__,
        n_train=len(task.train),
        n_pool=len(task.pool),
        n_test=len(task.test),
        starts=[start_facts(c) for c in getattr(estimator, "candidates_", [])],
    )


def start_facts(candidate: Any) -> dict[str, Any]:
    """What tables and figures need of one start."""
    first = next(iter(candidate.learned))
    return {
        "initial": rounded(candidate.initial),
        "learned": rounded(candidate.learned),
        "variance": float(f"{candidate.score_variance:.4g}"),
        "collapsed": candidate.collapsed,
        "losses": [round(candidate.train_loss, 4), round(candidate.val_loss, 4)],
        "path": [float(f"{record.learned[first]:.4g}") for record in candidate.history],
    }


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def run_here(todo: list[Unit], jobs: int) -> Iterator[list[Line]]:
    """In processes of this machine, each result as soon as it is there."""
    if jobs == 1:
        yield from map(run_unit, todo)
        return
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from parallel(delayed(run_unit)(unit) for unit in todo)
