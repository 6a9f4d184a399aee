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

from ...methods.frozen_restart import PretrainedCandidate
from ...methods.paper_candidate import PaperCandidate
from ...parallel.processes import unordered
from ...parallel.threads import torch_threads
from ...settings import AnySettings
from ...version import __version__
from ..testbeds.task import Task
from ..testbeds.task_images import Protocol
from ..testbeds.testbed import Testbed, find_testbed
from .cell import Cell, Line
from .methods import Estimator, Method, Surroundings, find_method, read_source


@dataclass(frozen=True)
class Unit:
    """Cells that are run together, since one fit may serve them all."""

    cells: tuple[Cell, ...]
    data: Path | None
    warm_starts: Path | None
    reference: str = ""  # of the method, where its name alone doesn't find it
    device: str = "cpu"

    @property
    def method(self) -> Method:
        return find_method(self.reference or self.cells[0].method)


@dataclass(frozen=True)
class Outcome:
    """Of a unit: its lines and, if a cell failed, which and why."""

    lines: list[Line]
    failed: Cell | None = None
    error: str = ""


def make_units(
    cells: Iterable[Cell],
    data: Path | None,
    warm_starts: Path | None,
    references: Mapping[str, str] | None = None,
    device: str = "cpu",
) -> list[Unit]:
    """Cells of a method that ignores the pool go together, and those of the same pool.

    In turn from each group with the same images and seed: two that run at once seldom need the
    same warm start. `references` find a user's own methods, by their names.
    """
    references = references or {}
    groups: dict[tuple[Any, ...], list[list[Cell]]] = defaultdict(list)
    together: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        images = (cell.testbed, cell.task.split("/")[0] if cell.testbed == "svhn" else "")
        # Of given contamination, the pool is the same by both protocols.
        protocol = cell.protocol if cell.contamination is None else ""
        group = (*images, protocol, cell.contamination, cell.seed)
        uses_pool = find_method(references.get(cell.method, cell.method)).uses_pool
        name = (*group, cell.preset, str(cell.changes), cell.method, cell.task * uses_pool)
        if name not in together:
            together[name] = []
            groups[group].append(together[name])
        together[name].append(cell)
    ordered = in_turn(list(groups.values()))
    return [
        Unit(tuple(cells), data, warm_starts, references.get(cells[0].method, ""), device)
        for cells in ordered
    ]


def in_turn(groups: list[list[Any]]) -> list[Any]:
    longest = max((len(group) for group in groups), default=0)
    return [group[i] for i in range(longest) for group in groups if i < len(group)]


def make_settings(cell: Cell, bed: Testbed) -> AnySettings:
    return bed.settings(cell.preset, **cell.changes)


def load_task(cell: Cell, data: Path | None) -> Task:
    bed = find_testbed(cell.testbed, data)
    reading = make_settings(cell, bed).reading
    protocol = cast(Protocol, cell.protocol)
    return bed.load(cell.task, cell.preset, reading, protocol, cell.seed, cell.contamination)


def digest_inputs(cell: Cell, task: Task, data: Path | None, reference: str = "") -> str:
    """A digest of what a result depends on beside its cell: images, settings, code of one's own."""
    digest = hashlib.sha256()
    settings = make_settings(cell, find_testbed(cell.testbed, data))
    defaults = asdict(
        type(settings)()
    )  # a setting that is added later, and left alone, is no change
    changed = {k: v for k, v in asdict(settings).items() if v != defaults[k]}
    digest.update(str(changed).encode())
    digest.update(read_source(reference).encode())
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
                details = collect_details(fitted[1], task)
            digest = digest_inputs(cell, task, unit.data, unit.reference)
            line = make_line(cell, task, fitted[1], auc, seconds, digest)
            lines.append(replace(line, details=details))
        except Exception as error:  # whatever a method may do; the other cells go on
            return Outcome(share_seconds(lines), cell, f"{type(error).__name__}: {error}")
    return Outcome(share_seconds(lines))


def serves(fitted: Task, task: Task, uses_pool: bool) -> bool:
    """Whether what was fitted to one task holds for another."""
    same = torch.equal(fitted.train, task.train)
    return same and (not uses_pool or torch.equal(fitted.pool, task.pool))


def collect_details(estimator: Estimator, task: Task) -> dict[str, float]:
    """What a method gives beside its scores: numbers, the shares of normal and anomalous images
    above its thresholds, and the AUC of other scores it has."""
    details = dict(getattr(estimator, "details", {}))
    for rate, threshold in getattr(estimator, "thresholds", {}).items():
        shares = task.shares_above(threshold, estimator.decision_function(task.test))
        details |= {f"flagged {100 * rate:g} %": shares[0], f"found {100 * rate:g} %": shares[1]}
    if hasattr(estimator, "other_scores"):
        others = estimator.other_scores(task.test)
        details |= {f"auc {name}": task.auc(scores) for name, scores in others.items()}
    return round_numbers(details)


def fit(unit: Unit, cell: Cell, task: Task) -> tuple[Estimator, float]:
    """All that a method sees of a task: normal images and the unlabeled pool. And seconds."""
    bed = find_testbed(cell.testbed, unit.data)
    surroundings = Surroundings(
        make_settings(cell, bed),
        bed.augmentation(cell.preset),
        cell.seed,
        unit.warm_starts,
        unit.device,
        bed.name != "svhn",
    )
    estimator = unit.method.build(surroundings)
    began = time.perf_counter()
    estimator.fit(task.train, task.pool)
    return estimator, time.perf_counter() - began


def share_seconds(lines: list[Line]) -> list[Line]:
    """The time of fits that served several cells, in equal parts."""
    total = sum(line.seconds for line in lines)
    return [replace(line, seconds=round(total / len(lines), 1)) for line in lines]


def make_line(
    cell: Cell, task: Task, estimator: Estimator, auc: float, seconds: float, digest: str
) -> Line:
    return Line(
        cell=cell,
        auc=auc,
        seconds=seconds,
        learned=round_numbers(getattr(estimator, "learned_", {})),
        version=__version__,
        n_train=len(task.train),
        n_pool=len(task.pool),
        n_test=len(task.test),
        made_of=digest,
        starts=[describe_start(c) for c in getattr(estimator, "candidates_", [])],
    )


def describe_start(candidate: Any) -> dict[str, Any]:
    """What tables and figures need of one restart."""
    return {
        "initial": round_numbers(candidate.initial),
        "learned": round_numbers(candidate.learned),
        "path": trace_path(candidate),
        **DESCRIBE[type(candidate)](candidate),
    }


def trace_path(candidate: Any) -> list[float]:
    """The paper's size or, where there is none, the first learned value, on its way."""
    first = "size" if "size" in candidate.learned else next(iter(candidate.learned))
    return [float(f"{record.learned[first]:.4g}") for record in candidate.history]


def describe_paper_start(c: PaperCandidate) -> dict[str, Any]:
    return {
        "variance": float(f"{c.score_variance:.4g}"),
        "collapsed": c.collapsed,
        "losses": [round(c.train_loss, 4), round(c.val_loss, 4)],
    }


def describe_pretrained_start(c: PretrainedCandidate) -> dict[str, Any]:
    aligned = {"J": c.alignment, "mean_distance": c.mean_distance}
    return {"type": c.augmentation, **round_numbers(aligned), "loss": round(c.val_loss, 4)}


DESCRIBE: dict[type, Callable[[Any], dict[str, Any]]] = {
    PaperCandidate: describe_paper_start,
    PretrainedCandidate: describe_pretrained_start,
}


def round_numbers(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers to four digits; texts as they are."""
    return {
        name: value if isinstance(value, str) else float(f"{value:.4g}")
        for name, value in values.items()
    }


def run_here(todo: list[Unit], jobs: int) -> Iterator[Outcome]:
    """In processes of this machine, each result as soon as it is there."""
    yield from map(run_unit, todo) if jobs == 1 else unordered(run_unit, todo, jobs)
