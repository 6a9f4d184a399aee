"""A run that has a model, opened: what Python and the pages read of it."""

from pathlib import Path
from typing import Any

from ..model import STSSAD
from ..storage.files import intact
from ..storage.table import read_table
from .folder import ADVICE, RunFolder
from .predictions import Prediction
from .summary import Summary, read_summary


class Run:
    """Nothing here writes: `runs.fit` and `runs.refit` do."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, RunFolder(folder)

    @staticmethod
    def open(folder: Path) -> "Run":
        """A run that `stssad fit` has finished."""
        run = Run(folder)
        if not run.files.has_model:
            raise FileNotFoundError(
                f"no {run.files.model.name} in {str(folder)!r}; give a folder that `stssad fit` "
                "has finished"
            )
        return run

    @property
    def report(self) -> Path:
        """Where the page is."""
        return self.files.report

    @property
    def metadata(self) -> dict[str, Any]:
        """What was asked for, with which versions, and how long it took."""
        return self.files.metadata

    def model(self, **own: Any) -> STSSAD:
        """The fitted model; arguments as of STSSAD.load."""
        return STSSAD.load(self.folder, **own)

    def summary(self) -> Summary:
        """What the model says about itself, without building it."""
        return read_summary(self.folder)

    def predictions(self) -> list[Prediction]:
        """For the pool, as they were written."""
        path = self.files.scores
        with intact(path, ADVICE):
            return [Prediction.parse(row) for row in read_table(path)]
