"""The folder of a run: what its files are called, what state it is in, and who works on it.

No other module spells the name of one of these files.
"""

import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from ..storage.files import read_json, write_json
from ..storage.lock import HeldError, is_locked, locked

ADVICE = "fit again with another --out"
# absent: no run is here; stopped: it can be resumed; scored: it has a model and scores that nobody
# has explained yet; damaged: its metadata can't be read.
State = Literal["absent", "running", "stopped", "scored", "finished", "damaged"]


class RunFolder:
    """Names, state and lock of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # Written by a fit, in about this order.

    @property
    def metadata_file(self) -> Path:
        """What was asked for, with which versions; its presence makes the folder a run."""
        return self.path / "environment.json"

    @property
    def checkpoints(self) -> Path:
        """Where restarts keep their state while a fit is under way."""
        return self.path / "checkpoints"

    @property
    def scores(self) -> Path:
        """Predictions for the pool."""
        return self.path / "scores.csv"

    @property
    def history(self) -> Path:
        """Every iteration of every restart."""
        return self.path / "history.csv"

    @property
    def material(self) -> Path:
        """Images of the report."""
        return self.path / "report.safetensors"

    @property
    def refit(self) -> Path:
        """What a refit needs, so that it encodes nothing again."""
        return self.path / "refit.safetensors"

    @property
    def weights(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def model(self) -> Path:
        """Written after the weights: a model that is there is whole."""
        return self.path / "model.json"

    @property
    def report(self) -> Path:
        """The page, made of the files above."""
        return self.path / "report.html"

    # Written by reviewers, the studio and `stssad watch`.

    @property
    def groups(self) -> Path:
        """Names of the groups of similar anomalies."""
        return self.path / "groups.json"

    @property
    def labels(self) -> Path:
        """Labels that people gave to images."""
        return self.path / "labels.sqlite"

    @property
    def used_labels(self) -> Path:
        """Those that a refit has learned from."""
        return self.path / "labels.csv"

    @property
    def watched(self) -> Path:
        """Scores of images as they arrived in a folder."""
        return self.path / "watch.csv"

    @property
    def progress(self) -> Path:
        """How far a fit of the studio is."""
        return self.path / "progress.json"

    @property
    def log(self) -> Path:
        """What a fit of the studio printed."""
        return self.path.parent / f".{self.path.name}.fit.log"

    @property
    def proposal(self) -> "RunFolder":
        """A refit that nobody has accepted yet."""
        return RunFolder(self.path.parent / f".{self.path.name}.proposal")

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    @property
    def holder_file(self) -> Path:
        """The process that has the lock."""
        return self.path / ".lock.pid"

    @property
    def model_files(self) -> tuple[Path, Path, Path]:
        """All that scoring needs, to be copied to another machine."""
        return self.model, self.weights, self.metadata_file

    @property
    def refitted_files(self) -> tuple[Path, ...]:
        """What a refit copies unchanged."""
        return self.history, self.material, self.groups, self.refit

    @property
    def state(self) -> State:
        if not self.is_run:
            return "absent"
        try:
            metadata = self.metadata
        except ValueError:
            return "damaged"
        if self.has_model and not self.lacks_explanation(metadata) and self.report.is_file():
            return "finished"
        if self.is_locked:
            return "running"
        return "scored" if self.has_model else "stopped"

    @property
    def is_complete(self) -> bool:
        """Whether the scores have been explained."""
        return self.metadata.get("complete") is True

    @staticmethod
    def lacks_explanation(metadata: Mapping[str, Any]) -> bool:
        """Whether one was asked for and isn't there yet."""
        request = metadata.get("request")
        wanted = isinstance(request, dict) and request.get("explain", True) is True
        return wanted and metadata.get("complete") is not True

    @property
    def is_run(self) -> bool:
        return self.metadata_file.is_file()

    @property
    def has_model(self) -> bool:
        return self.model.is_file()

    @property
    def metadata(self) -> dict[str, Any]:
        return read_json(self.metadata_file, ADVICE)

    def write_metadata(self, content: Mapping[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.metadata_file, content)

    def add_metadata(self, content: Mapping[str, Any]) -> None:
        self.write_metadata({**self.metadata, **content})

    def clear_checkpoints(self) -> None:
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def clear_torn(self) -> None:
        """Files that were half-written when a fit was killed; for the holder of the lock alone."""
        for torn in self.path.glob(".*.tmp"):
            torn.unlink(missing_ok=True)

    def remove_unused(self) -> None:
        """The folder, unless there is more in it than what was asked for."""
        if {path.name for path in self.path.iterdir()} <= {self.metadata_file.name, self.lock.name}:
            shutil.rmtree(self.path)

    @property
    def is_locked(self) -> bool:
        """Whether a process works on the run."""
        return is_locked(self.lock)

    @property
    def holder(self) -> int | None:
        """The process that works on the run, if one does and its number is known."""
        if not self.is_locked:
            return None
        try:
            number = int(self.holder_file.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return number if number > 1 else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone with the run; an error names the process that works on it already."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self.lock):
                self.holder_file.write_text(str(os.getpid()), "utf-8")
                try:
                    yield
                finally:
                    self.holder_file.unlink(missing_ok=True)
        except HeldError:
            who = self.holder or "another"
            raise ValueError(
                f"process {who} is working on the run in {str(self.path)!r}; wait for it, or stop "
                "it first"
            ) from None

    def stop(self) -> bool:
        """Stop the process that works on the run, as Ctrl-C would; it can be resumed."""
        number = self.holder
        if number is None:
            return False
        with suppress(ProcessLookupError):  # it has ended since
            os.kill(number, signal.SIGTERM)
        return True
