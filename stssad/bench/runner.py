"""Runs cells, here or on a cluster, and hands over each result as it comes.

Labels are read here, once a method has given its scores, by `Task.auc`.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from ..methods.frozen_restart import PretrainedCandidate
from ..methods.paper_candidate import PaperCandidate
from ..processes import unordered
from ..settings import AnySettings
from ..testbeds.parts import Protocol
from ..testbeds.task import Task
from ..testbeds.testbed import Testbed, find_testbed
from ..threads import torch_threads
from ..version import __version__
from .cell import Cell, Line
from .methods import Estimator, Method, Surroundings, method, source_of


@dataclass(frozen=True)
class Unit:
    """Cells that are run together, since one fit may serve them all."""

    cells: tuple[Cell, ...]
    data: Path | None
    warm_starts: Path | None
    words: str = ""  # for the method, where its name alone doesn't find it
    device: str = "cpu"

    @property
    def method(self) -> Method:
        return method(self.words or self.cells[0].method)


@dataclass(frozen=True)
class Outcome:
    """What became of a unit: its lines or, of the cell that failed, why."""

    lines: list[Line]
    failed: Cell | None = None
    error: str = ""


def units(
    cells: Iterable[Cell],
    data: Path | None,
    warm_starts: Path | None,
    words: Mapping[str, str] | None = None,
    device: str = "cpu",
) -> list[Unit]:
    """Cells of a method that ignores the pool go together, and those of the same pool.

    In turn from each group with the same images and seed: two that run at once seldom need the
    same warm start. `words` finds methods that are a user's own, by their names.
    """
    words = words or {}
    groups: dict[tuple[Any, ...], list[list[Cell]]] = defaultdict(list)
    together: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        images = (cell.testbed, cell.task.split("/")[0] if cell.testbed == "svhn" else "")
        # Of given contamination, the pool is the same by both protocols.
        protocol = cell.protocol if cell.contamination is None else ""
        group = (*images, protocol, cell.contamination, cell.seed)
        uses_pool = method(words.get(cell.method, cell.method)).uses_pool
        name = (*group, cell.preset, str(cell.changes), cell.method, cell.task * uses_pool)
        if name not in together:
            together[name] = []
            groups[group].append(together[name])
        together[name].append(cell)
    ordered = in_turn(list(groups.values()))
    return [
        Unit(tuple(cells), data, warm_starts, words.get(cells[0].method, ""), device)
        for cells in ordered
    ]


def in_turn(groups: list[list[Any]]) -> list[Any]:
    longest = max((len(group) for group in groups), default=0)
    return [group[i] for i in range(longest) for group in groups if i < len(group)]


def settings_of(cell: Cell, bed: Testbed) -> AnySettings:
    return bed.settings(cell.preset, **cell.changes)


def load_task(cell: Cell, data: Path | None) -> Task:
    bed = find_testbed(cell.testbed, data)
    reading = settings_of(cell, bed).reading
    protocol = cast(Protocol, cell.protocol)
    return bed.load(cell.task, cell.preset, reading, protocol, cell.seed, cell.contamination)


def made_of(cell: Cell, task: Task, data: Path | None, words: str = "") -> str:
    """A digest of what a result rests on beside its cell: images, settings, code of one's own."""
    digest = hashlib.sha256()
    settings = settings_of(cell, find_testbed(cell.testbed, data))
    usual = asdict(type(settings)())  # a setting that is added later, and left alone, is no change
    changed = {k: v for k, v in asdict(settings).items() if v != usual[k]}
    digest.update(str(changed).encode())
    digest.update(source_of(words).encode())
    for images in (task.train, task.pool, task.test):
        if images.is_floating_point():  # whose last bits differ between machines
            images = (images * 255).round().to(torch.uint8)
        digest.update(images.numpy().tobytes())
    return digest.hexdigest()[:16]


def run_unit(unit: Unit) -> Outcome:
    """Every cell of a unit; one that fails is named, and those before it are kept."""
    lines: list[Line] = []
    fitted: tuple[Task, Estimator] | None = None
    for cell in unit.cells:
        try:
            task = load_task(cell, unit.data)
            with torch_threads(1):  # as in any other process
                seconds = 0.0
                if fitted is None or not serves(fitted[0], task, unit.method.uses_pool):
                    estimator, seconds = fit(unit, cell, task)
                    fitted = task, estimator
                elif hasattr(fitted[1], "choose"):
                    fitted[1].choose(task.pool)
                auc = task.auc(fitted[1].decision_function(task.test))
                details = details_of(fitted[1], task)
            digest = made_of(cell, task, unit.data, unit.words)
            line = line_of(cell, task, fitted[1], auc, seconds, digest)
            lines.append(replace(line, details=details))
        except Exception as error:  # whatever a method may do; the other cells go on
            return Outcome(with_shared_seconds(lines), cell, f"{type(error).__name__}: {error}")
    return Outcome(with_shared_seconds(lines))


def serves(fitted: Task, task: Task, uses_pool: bool) -> bool:
    """Whether what was fitted to one task holds for another."""
    same = torch.equal(fitted.train, task.train)
    return same and (not uses_pool or torch.equal(fitted.pool, task.pool))


def details_of(estimator: Estimator, task: Task) -> dict[str, float]:
    """What a method tells beside its scores: numbers, the shares of normal and anomalous images
    above its thresholds, and the AUC of other scores it has."""
    facts = dict(getattr(estimator, "facts", {}))
    for rate, threshold in getattr(estimator, "thresholds", {}).items():
        shares = task.shares_above(threshold, estimator.decision_function(task.test))
        facts |= {f"flagged {100 * rate:g} %": shares[0], f"found {100 * rate:g} %": shares[1]}
    if hasattr(estimator, "other_scores"):
        others = estimator.other_scores(task.test)
        facts |= {f"auc {name}": task.auc(scores) for name, scores in others.items()}
    return rounded(facts)


def fit(unit: Unit, cell: Cell, task: Task) -> tuple[Estimator, float]:
    """All that a method sees of a task: normal images and the unlabeled pool. And seconds."""
    bed = find_testbed(cell.testbed, unit.data)
    place = Surroundings(
        settings_of(cell, bed),
        bed.augmentation(cell.preset),
        cell.seed,
        unit.warm_starts,
        unit.device,
    )
    estimator = unit.method.build(place)
    began = time.perf_counter()
    estimator.fit(task.train, task.pool)
    return estimator, time.perf_counter() - began


def with_shared_seconds(lines: list[Line]) -> list[Line]:
    """The time of fits that served several cells, in equal parts."""
    total = sum(line.seconds for line in lines)
    return [replace(line, seconds=round(total / len(lines), 1)) for line in lines]


def line_of(
    cell: Cell, task: Task, estimator: Estimator, auc: float, seconds: float, digest: str
) -> Line:
    return Line(
        cell=cell,
        auc=auc,
        seconds=seconds,
        learned=rounded(getattr(estimator, "learned_", {})),
        version=__version__,
        n_train=len(task.train),
        n_pool=len(task.pool),
        n_test=len(task.test),
        made_of=digest,
        starts=[start_facts(c) for c in getattr(estimator, "candidates_", [])],
    )


def start_facts(candidate: Any) -> dict[str, Any]:
    """What tables and figures need of one restart."""
    return {
        "initial": rounded(candidate.initial),
        "learned": rounded(candidate.learned),
        "path": path_of(candidate),
        **KIND_FACTS[type(candidate)](candidate),
    }


def path_of(candidate: Any) -> list[float]:
    """The paper's size or, where there is none, the first learned value, on its way."""
    first = "size" if "size" in candidate.learned else next(iter(candidate.learned))
    return [float(f"{record.learned[first]:.4g}") for record in candidate.history]


def paper_facts(c: PaperCandidate) -> dict[str, Any]:
    return {
        "variance": float(f"{c.score_variance:.4g}"),
        "collapsed": c.collapsed,
        "losses": [round(c.train_loss, 4), round(c.val_loss, 4)],
    }


def pretrained_facts(c: PretrainedCandidate) -> dict[str, Any]:
    aligned = {"J": c.alignment, "mean_distance": c.mean_distance}
    return {"type": c.augmentation, **rounded(aligned), "loss": round(c.val_loss, 4)}


KIND_FACTS: dict[type, Callable[[Any], dict[str, Any]]] = {
    PaperCandidate: paper_facts,
    PretrainedCandidate: pretrained_facts,
}


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers to four digits; words as they are."""
    return {
        name: value if isinstance(value, str) else float(f"{value:.4g}")
        for name, value in values.items()
    }


def run_here(todo: list[Unit], jobs: int) -> Iterator[Outcome]:
    """In processes of this machine, each result as soon as it is there."""
    yield from map(run_unit, todo) if jobs == 1 else unordered(run_unit, todo, jobs)
