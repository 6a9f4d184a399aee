"""The demonstration: a patch is planted, the program finds out which, and says so."""

import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from .model import STSSAD
from .report import gather, write_report
from .runs import environment
from .settings import Settings
from .starts import Notify
from .testbeds.synthetic import planted_patch


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
    out.mkdir(parents=True, exist_ok=True)
    facts = {
        "title": f"Patches on {texture}",
        "command": command,
        "n_normal": len(task.train),
        "n_unlabeled": len(task.pool),
        "seconds": round(seconds, 1),
        **environment(),
    }
    report = write_report(out, model, gather(model, task.train, task.pool), facts)
    return Demonstration(area, contamination, model, auc, seconds, report)
