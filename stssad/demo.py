"""The demonstrations: defects are planted, the program finds out which, and says so.

`run_demo` is the paper's way, on dark patches of a hidden size; `run_kinds` the default way, on
three kinds of defects.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .augment import Augmentation, Patch, Scar
from .augment.draws import log_uniform, uniform
from .model import STSSAD
from .report import gather, write_report
from .runs import environment
from .settings import Settings
from .starts import Notify
from .testbeds.synthetic import planted_augmentation, planted_patch
from .testbeds.task import Task


@dataclass(frozen=True)
class Demonstration:
    """What was planted, what was learned, and how well it finds the planted patches."""

    planted_area: float
    contamination: float
    model: STSSAD
    auc: float
    seconds: float
    report: Path


def hidden_area(seed: int) -> float:
    """A patch area between 1 and 16 % of the picture, drawn log-uniformly."""
    generator = torch.Generator().manual_seed(seed)
    low, high = math.log(0.01), math.log(0.16)
    return math.exp(low + (high - low) * float(torch.rand((), generator=generator)))


def run_demo(
    out: Path,
    command: str = "stssad demo",
    seed: int = 0,
    texture: str = "grass",
    jobs: int = 2,
    progress: Notify | None = None,
) -> Demonstration:
    """Plant, tune from the paper's four starts, choose, score, and write the page into `out`."""
    began = time.perf_counter()
    area, contamination = hidden_area(seed), 0.5
    task = planted_patch(area, texture=texture, contamination=contamination, seed=seed)
    model = STSSAD(settings=Settings.quick(), seed=seed, jobs=jobs)
    model.fit(task.train, task.pool, progress)  # sees no labels, and not the area
    auc = task.auc(model.decision_function(task.test))
    seconds = time.perf_counter() - began
    report = page(out, f"Patches on {texture}", command, model, task, seconds)
    return Demonstration(area, contamination, model, auc, seconds, report)


def page(out: Path, title: str, command: str, model: STSSAD, task: Task, seconds: float) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    facts = {
        "title": title,
        "command": command,
        "n_normal": len(task.train),
        "n_unlabeled": len(task.pool),
        "seconds": round(seconds, 1),
        **environment(),
    }
    return write_report(out, model, gather(model, task.train, task.pool), facts)


@dataclass(frozen=True)
class Kind:
    """A kind of defect, and what was planted of it."""

    name: str
    augmentation: Augmentation
    a: Tensor

    @property
    def planted(self) -> dict[str, float]:
        return self.augmentation.describe(self.a)


@dataclass(frozen=True)
class Found:
    """What became of one kind."""

    kind: Kind
    model: STSSAD
    auc: float
    seconds: float
    report: Path


def hidden_kinds(seed: int) -> list[Kind]:
    """A dark patch, a bright patch and a thin stroke, their sizes and strengths drawn."""
    generator = torch.Generator().manual_seed(seed)

    def between(low: float, high: float) -> Tensor:
        return uniform(low, high, generator)

    def a_patch(sign: float) -> Tensor:
        log_area, amplitude = log_uniform(0.015, 0.06, generator), sign * between(0.45, 0.7)
        return torch.stack([log_area, torch.tensor(0.0), torch.tensor(0.0), amplitude])

    dark, bright = a_patch(-1), a_patch(1)
    length, width = log_uniform(0.6, 1.0, generator), log_uniform(0.02, 0.04, generator)
    stroke = torch.stack([length, width, between(0.6, 0.9)])
    return [
        Kind("dark patch", Patch(), dark),
        Kind("bright patch", Patch(), bright),
        Kind("thin bright stroke", Scar(), stroke),
    ]


def run_kinds(
    out: Path,
    command: str = "stssad demo",
    seed: int = 0,
    texture: str = "gravel",
    jobs: int = 2,
    progress: Notify | None = None,
) -> Iterator[Found]:
    """Plant each kind in a fifth of a pool, and let the default way find out which."""
    for kind in hidden_kinds(seed):
        began = time.perf_counter()
        task = planted_augmentation(kind.augmentation, kind.a, texture, 128, 200, 100, 0.2, seed)
        model = STSSAD(seed=seed, jobs=jobs)
        model.fit(task.train, task.pool, progress)  # sees no labels, and not what was planted
        auc = task.auc(model.decision_function(task.test))
        seconds = time.perf_counter() - began
        title = f"{kind.name.capitalize()} on {texture}"
        report = page(out / kind.name.replace(" ", "-"), title, command, model, task, seconds)
        yield Found(kind, model, auc, seconds, report)
