"""The demonstrations: defects are planted, the program finds out which, and says so.

`run_kinds` is the pretrained method on several kinds of defects, `run_paper` the paper's on dark
patches of a hidden size.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..augment import Augmentation
from ..augment.cutdiff import CutDiff
from ..augment.draws import log_uniform, uniform
from ..augment.patch import Patch
from ..augment.scratch import Scratch
from ..runs.environment import environment
from ..runs.fit import fit_run, images_from_memory
from ..runs.folder import RunFolder
from ..runs.request import FitRequest
from ..runs.run import Run
from ..settings import Settings
from ..tuning.progress import Notify
from .testbeds.synthetic import planted_augmentation, planted_patch
from .testbeds.task import Task


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
    run: Run
    auroc: float
    seconds: float


def hidden_size(seed: int) -> float:
    """The paper's size of a patch, between 0.01 and 0.16, drawn log-uniformly."""
    generator = torch.Generator().manual_seed(seed)
    low, high = math.log(0.01), math.log(0.16)
    return math.exp(low + (high - low) * float(torch.rand((), generator=generator)))


def hidden_kinds(seed: int) -> list[Kind]:
    """A bright patch and a scratch, their sizes and strengths drawn."""
    generator = torch.Generator().manual_seed(seed)

    def between(low: float, high: float) -> Tensor:
        return uniform(low, high, generator)

    log_size, amplitude = log_uniform(0.015, 0.06, generator), between(0.45, 0.7)
    bright = torch.stack([log_size, torch.tensor(0.0), torch.tensor(0.0), amplitude])
    length, width = log_uniform(0.6, 1.0, generator), log_uniform(0.02, 0.04, generator)
    scratch = torch.stack([length, width, between(0.6, 0.9)])
    return [Kind("bright patch", Patch(), bright), Kind("scratch", Scratch(), scratch)]


def run_kinds(
    out: Path, command: str, seed: int, texture: str, jobs: int, progress: Notify | None = None
) -> Iterator[Found]:
    """Plant each kind in a fifth of a pool, and let the pretrained method find out which."""
    for kind in hidden_kinds(seed):
        task = planted_augmentation(kind.augmentation, kind.a, texture, 128, 200, 100, 0.2, seed)
        request = FitRequest.of(None, None, seed=seed, jobs=jobs)
        run, title = out / kind.name.replace(" ", "-"), f"{kind.name.capitalize()} on {texture}"
        yield demonstrated(kind, task, request, RunFolder(run), (title, command), progress)


def run_paper(
    out: Path, command: str, seed: int, texture: str, jobs: int, progress: Notify | None = None
) -> Found:
    """Plant dark patches in half of a pool, and tune from the paper's four initial values."""
    size = hidden_size(seed)
    kind = Kind("dark patch", CutDiff(), torch.tensor([math.log(size), 0.0, 0.0]))
    task = planted_patch(size, texture=texture, contamination=0.5, seed=seed)
    settings = Settings.quick(warm_start_epochs=25, max_iterations=40)  # enough for a large patch
    request = FitRequest.of(None, None, "paper", settings=settings, seed=seed, jobs=jobs)
    title = f"Patches on {texture}"
    return demonstrated(kind, task, request, RunFolder(out), (title, command), progress)


def demonstrated(
    kind: Kind,
    task: Task,
    request: FitRequest,
    run: RunFolder,
    origin: tuple[str, str],
    progress: Notify | None,
) -> Found:
    """Fit, which sees no labels and not what was planted; `origin` are the run's title and command.

    A demonstration that is run again takes the place of the one before.
    """
    title, command = origin
    metadata = {"title": title, "command": command, "request": request.content()}
    with run.locked():
        run.clear_checkpoints()
        run.write_metadata({**metadata, **environment()})
        inputs = images_from_memory(request, task.train, task.pool)
        model = fit_run(run, request, inputs, progress)
    auroc = task.auc(model.decision_scores_)  # the pool is the test, too
    return Found(kind, Run(run.path), auroc, run.metadata["seconds"])
