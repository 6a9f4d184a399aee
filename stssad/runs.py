"""A run: from two folders of pictures to a folder that holds the model and all about it.

environment.json    what was asked for, with which versions; written first, it marks a run
checkpoints/        while the fit is under way
scores.csv          the pool's scores; history.csv: every iteration of every start
report.html         the page (report.safetensors: its pictures)
model.safetensors, model.json    written last: they mark a run that is finished
"""

import csv
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .augment import Augmentation
from .candidate import Candidate
from .images import UnreadableError, duplicates, find_pictures, read_pictures
from .model import STSSAD, check_counts
from .report import Material, gather, write_report
from .scores import rows, write_rows
from .settings import Settings
from .starts import Notify
from .storage import read_json, replacing, write_json
from .version import __version__


@dataclass(frozen=True)
class Request:
    """What a user asks for."""

    normal: Path
    unlabeled: Path
    out: Path
    augmentation: list[Augmentation]
    encoder: nn.Module
    settings: Settings
    seed: int = 0
    jobs: int = 1
    device: str = "cpu"
    false_alarms: float = 0.01
    strict: bool = False

    def facts(self) -> dict[str, Any]:
        """What the result depends on, for environment.json."""
        return {
            "normal": str(self.normal),
            "unlabeled": str(self.unlabeled),
            "augmentation": [type(family).__name__ for family in self.augmentation],
            "encoder": type(self.encoder).__name__,
            "settings": asdict(self.settings),
            "seed": self.seed,
            "false_alarms": self.false_alarms,
        }


@dataclass
class Inputs:
    """The pictures of a request, as they were read."""

    train: Tensor
    train_paths: list[Path]
    pool: Tensor
    pool_paths: list[Path]
    unreadable: list[UnreadableError] = field(default_factory=list)


def is_finished(out: Path) -> bool:
    return (out / "model.json").is_file()


def prepare(request: Request, resume: bool, command: str) -> None:
    """Make the folder of a new run, or check that the one there can go on."""
    out = request.out
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {str(out)!r} is a file; give a folder")
    marker = out / "environment.json"
    if not marker.is_file():
        out.mkdir(parents=True, exist_ok=True)
        facts = {"title": out.resolve().name, "command": command, "request": request.facts()}
        write_json(marker, {**facts, **environment()})
    elif not resume:
        state = "a finished run" if is_finished(out) else "a run that was stopped"
        advice = "" if is_finished(out) else ", or go on with it by adding --resume"
        raise ValueError(f"{str(out)!r} holds {state}; give another --out{advice}")
    else:
        check_same(read_json(marker)["request"], request.facts(), out)
        for torn in out.glob(".*.tmp"):  # half-written when the run was killed
            torn.unlink()


def check_same(before: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    """A run goes on only as it began."""
    before, now = flat(before), flat(now)
    for name, value in now.items():
        if before.get(name) != value:
            raise ValueError(
                f"the run in {str(out)!r} was begun with {name} {before.get(name)!r}, not "
                f"{value!r}; resume it with the same, or give another --out"
            )


def flat(facts: dict[str, Any]) -> dict[str, Any]:
    return {**{k: v for k, v in facts.items() if k != "settings"}, **facts["settings"]}


def environment() -> dict[str, Any]:
    """Versions and machine."""
    from importlib.metadata import version

    packages = ("torch", "numpy", "scipy", "scikit-learn", "pillow", "safetensors")
    return {
        "stssad": __version__,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "packages": {name: version(name) for name in packages},
    }


def read_inputs(request: Request, warn: Callable[[UnreadableError], None]) -> Inputs:
    """Both folders, checked: enough pictures, and none in both."""
    normal, pool = find_pictures(request.normal), find_pictures(request.unlabeled)
    if same := duplicates(normal, pool):
        one, other = same[0]
        more = f" (and {len(same) - 1} more)" if len(same) > 1 else ""
        raise ValueError(
            f"{str(one)!r} and {str(other)!r} are the same file{more}; a picture must be either "
            "known to be normal or unlabeled, so remove it from one of the folders"
        )
    unreadable: list[UnreadableError] = []

    def on_unreadable(error: UnreadableError) -> None:
        unreadable.append(error)
        warn(error)

    handler = None if request.strict else on_unreadable
    train, train_paths = read_pictures(normal, request.settings.reading, handler)
    unlabeled, pool_paths = read_pictures(pool, request.settings.reading, handler)
    check_counts(train, unlabeled)
    return Inputs(train, train_paths, unlabeled, pool_paths, unreadable)


def fit(request: Request, inputs: Inputs, notify: Notify | None = None) -> STSSAD:
    """The fit itself, going on from what a stopped one has kept, and everything it writes."""
    began = time.time()
    model = STSSAD(
        augmentation=request.augmentation,
        encoder=request.encoder,
        settings=request.settings,
        seed=request.seed,
        jobs=request.jobs,
        device=request.device,
        false_alarms=request.false_alarms,
    )
    checkpoints = request.out / "checkpoints"
    model.fit(inputs.train, inputs.pool, notify, checkpoints)
    material = gather(
        model, inputs.train, inputs.pool, inputs.train_paths, inputs.pool_paths, request.unlabeled
    )
    finish(request, inputs, model, material, time.time() - began)
    shutil.rmtree(checkpoints, ignore_errors=True)
    return model


def finish(
    request: Request, inputs: Inputs, model: STSSAD, material: Material, seconds: float
) -> None:
    """Write the run's files, the model last."""
    out = request.out
    with replacing(out / "scores.csv") as file:
        write_rows(rows(model, inputs.pool_paths, inputs.pool), file, "csv")
    write_history(out / "history.csv", model.candidates_)
    facts = read_json(out / "environment.json")
    facts |= {
        "seconds": round(seconds, 1),
        "n_normal": len(inputs.train),
        "n_unlabeled": len(inputs.pool),
        "unreadable": [str(error) for error in inputs.unreadable],
    }
    write_json(out / "environment.json", facts)
    material.save(out)
    write_report(out, model, material, facts)
    model.save(out)


def write_history(path: Path, candidates: list[Candidate]) -> None:
    """Every iteration of every start, a row each; a family's own columns are empty in others."""
    with replacing(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        learned = list(dict.fromkeys(name for c in candidates for name in c.learned))
        names = ("iteration", "train_loss", "val_loss", "clamped_share", "theta_seconds",
                 "a_seconds")  # fmt: skip
        n_a = max(len(c.a) for c in candidates)
        parts = [f"{part}_gradient_{i}" for part in ("direct", "indirect") for i in range(n_a)]
        writer.writerow(["start", "family", *names, *learned, *parts])
        for c in candidates:
            for r in c.history:
                values = [getattr(r, name) for name in names]
                known = [r.learned.get(name, "") for name in learned]
                blank = [""] * (n_a - len(c.a))
                gradients = [*r.direct_gradient, *blank, *r.indirect_gradient, *blank]
                writer.writerow([c.start + 1, c.family, *values, *known, *gradients])
