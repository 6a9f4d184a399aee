"""A run: the folder that holds a model and all about it.

environment.json    what was asked for, with which versions; written first, it marks a run
checkpoints/        while the fit is under way
scores.csv          predictions for the pool; history.csv: every iteration of every restart
report.safetensors  the report's images
model.safetensors, model.json    they mark a run that is finished
report.html         the page, made of the files above
"""

import csv
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor

from .images import UnreadableError, duplicates, find_images, read_images, settled
from .methods.advice import about_size
from .methods.defaults import resolve
from .methods.problem import Choices, check_counts
from .model import STSSAD
from .predictions import Prediction, predictions, write_predictions
from .storage import intact, read_json, replacing, write_json
from .summary import Summary, read_summary
from .tuning.restarts import Notify
from .version import __version__

ADVICE = "fit again with another --out"


@dataclass
class Request:
    """What a user asks for: an estimator that isn't fitted yet, and two folders."""

    normal: Path
    unlabeled: Path
    estimator: STSSAD
    strict: bool = False

    @cached_property
    def choices(self) -> Choices:
        """What the estimator leaves open, filled in."""
        e = self.estimator
        return resolve(e.method, e.augmentation, e.encoder, e.settings, e.val_loss, e.parts)[1]

    def settle(self, normal: list[Path]) -> int | None:
        """What the normal images say of size and deep grey, unless the user has; their side."""
        reading, side = settled(self.choices.settings.reading, normal)
        self.choices = self.choices.with_reading(reading)
        self.estimator.settings = self.choices.settings
        return side

    def content(self) -> dict[str, Any]:
        """What the result depends on, for environment.json."""
        e, choices = self.estimator, self.choices
        return {
            "normal": str(self.normal),
            "unlabeled": str(self.unlabeled),
            "method": e.method,
            "augmentation": [type(each).__name__ for each in choices.augmentations],
            "encoder": type(choices.encoder).__name__,
            "seed": e.seed,
            "false_alarms": e.false_alarms,
            "settings": asdict(choices.settings),
        }


@dataclass
class Inputs:
    """The images of a request, as they were read."""

    train: Tensor
    train_paths: list[Path]
    pool: Tensor
    pool_paths: list[Path]
    unreadable: list[UnreadableError] = field(default_factory=list)
    file_side: int | None = None  # of the normal images' files, in pixels


class Run:
    """The folder of a run, finished or under way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def create(folder: Path, request: Request, command: str, resume: bool = False) -> "Run":
        """A new run, or one that can be resumed."""
        run = Run(folder)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"--out {str(folder)!r} is a file; give a folder")
        if not run._marker.is_file():
            if folder.is_dir() and any(folder.iterdir()):
                raise ValueError(
                    f"{str(folder)!r} isn't empty and isn't a run; give --out a new folder, so "
                    "that nothing of yours is overwritten"
                )
            folder.mkdir(parents=True, exist_ok=True)
            facts = {"title": folder.resolve().name, "command": command}
            write_json(run._marker, {**facts, "request": request.content(), **environment()})
        elif not resume:
            state = "a finished run" if run.is_finished else "a run that was stopped"
            advice = "" if run.is_finished else ", or resume it by adding --resume"
            raise ValueError(f"{str(folder)!r} holds {state}; give another --out{advice}")
        else:
            with intact(run._marker, ADVICE):
                check_same(run.metadata["request"], request.content(), folder)
            for torn in folder.glob(".*.tmp"):  # half-written when the run was killed
                torn.unlink()
        return run

    @staticmethod
    def open(folder: Path) -> "Run":
        """A finished run."""
        run = Run(folder)
        if not run.is_finished:
            raise FileNotFoundError(
                f"no model.json in {str(folder)!r}; give a folder that `stssad fit` has finished"
            )
        return run

    @property
    def _marker(self) -> Path:
        return self.folder / "environment.json"

    @property
    def is_finished(self) -> bool:
        return (self.folder / "model.json").is_file()

    @property
    def report(self) -> Path:
        """Where the page is."""
        return self.folder / "report.html"

    @property
    def metadata(self) -> dict[str, Any]:
        """The content of environment.json."""
        return read_json(self._marker, ADVICE)

    def model(self, **own: Any) -> STSSAD:
        """The fitted model; arguments as of STSSAD.load."""
        return STSSAD.load(self.folder, **own)

    def summary(self) -> Summary:
        """What the model says about itself, without building it."""
        return read_summary(self.folder)

    def predictions(self) -> list[Prediction]:
        """For the pool, as scores.csv has them."""
        path = self.folder / "scores.csv"
        with (
            intact(path, ADVICE),
            open(path, encoding="utf-8", errors="surrogateescape", newline="") as file,
        ):
            return [
                Prediction(
                    row["image_path"], float(row["pred_score"]), int(row["pred_label"]),
                    float(row["p_value"]),
                )
                for row in csv.DictReader(file)
            ]  # fmt: skip

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone with the run: who else would work on it is told which process does."""
        path = self.folder / ".lock"
        with open(path, "a+", encoding="utf-8") as file:
            if not try_lock(file):
                file.seek(0)
                who = file.read().strip() or "another"
                raise ValueError(
                    f"process {who} is working on the run in {str(self.folder)!r}; wait for it, or "
                    "stop it first"
                )
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def fit(self, request: Request, inputs: Inputs, notify: Notify | None = None) -> STSSAD:
        """The fit itself, resumed from what a stopped one has kept; predictions and history."""
        began = time.monotonic()
        model = request.estimator
        model.fit(inputs.train, inputs.pool, notify, self.folder / "checkpoints")
        model.warnings_.extend(about_size(inputs.file_side, model.image_size_))
        with replacing(self.folder / "scores.csv", "surrogateescape") as file:
            rows = predictions(model, inputs.pool_paths, model.decision_scores_)
            write_predictions(rows, file, "csv")
        write_history(self.folder / "history.csv", model.candidates_)
        numbers = {
            "seconds": round(time.monotonic() - began, 1),
            "n_normal": len(inputs.train),
            "n_unlabeled": len(inputs.pool),
            "unreadable": [str(error) for error in inputs.unreadable],
        }
        write_json(self._marker, {**self.metadata, **numbers})
        return model

    def finish(self, model: STSSAD) -> None:
        """Save the model, which marks the run as finished."""
        model.save(self.folder)
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)


def try_lock(file: TextIO) -> bool:
    """Lock a file as long as it is open, if nobody else has; where there are no locks, as if."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def check_same(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    """A run is resumed only as it began."""
    before, now = flat(before), flat(now)
    for name, value in now.items():
        if name in ("white_level", "image_size") and value is None:  # not looked for yet
            continue
        if before.get(name) != value:
            raise ValueError(
                f"the run in {str(folder)!r} was begun with {name} {before.get(name)!r}, not "
                f"{value!r}; resume it with the same, or give another --out"
            )


def flat(content: dict[str, Any]) -> dict[str, Any]:
    return {**{k: v for k, v in content.items() if k != "settings"}, **content["settings"]}


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
    """Both folders, checked: enough images, and none in both."""
    normal, pool = find_images(request.normal), find_images(request.unlabeled)
    if same := duplicates(normal, pool):
        one, other = same[0]
        more = f" (and {len(same) - 1} more)" if len(same) > 1 else ""
        raise ValueError(
            f"{str(one)!r} and {str(other)!r} are the same file{more}; an image must be either "
            "known to be normal or unlabeled, so remove it from one of the folders"
        )
    unreadable: list[UnreadableError] = []

    def on_unreadable(error: UnreadableError) -> None:
        unreadable.append(error)
        warn(error)

    side = request.settle(normal)
    handler, reading = None if request.strict else on_unreadable, request.choices.settings.reading
    train, train_paths = read_images(normal, reading, handler)
    unlabeled, pool_paths = read_images(pool, reading, handler)
    check_counts(train, unlabeled)
    return Inputs(train, train_paths, unlabeled, pool_paths, unreadable, side)


def write_history(path: Path, candidates: list[Any]) -> None:
    """Every iteration of every restart, a row each; a type's own columns are empty in others.

    Lists, such as gradients, take a column for each entry.
    """
    rows = [
        {"restart": c.number + 1, "augmentation": c.augmentation, **columns(record)}
        for c in candidates
        for record in c.history
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path) as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def columns(record: Any) -> dict[str, Any]:
    """One iteration as it stands in a table."""
    row: dict[str, Any] = {}
    for name, value in asdict(record).items():
        if isinstance(value, dict):
            row |= value
        elif isinstance(value, list):
            row |= {f"{name}_{i}": each for i, each in enumerate(value)}
        else:
            row[name] = value
    return row
