"""A reviewed run to a new one: `stssad refit`, and the studio's before and after."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..methods.refit import FEWEST_DEFECTS, Kept, check_kept, refit
from ..model import STSSAD
from ..predictions import predictions, write_predictions
from ..report.kind_names import FILE as KINDS
from ..report.page import write_report
from ..run import Run
from ..scoring.calibration import CalibratedSum
from ..scoring.threshold import ScoreArray, reviewed_threshold
from ..storage import intact, read_tensors, replacing, write_json, write_tensors
from .marks import Mark, Marks, write_marks
from .order import wilson

KEPT = "refit.safetensors"
ADVICE = "fit the run again"
COPIED = ("history.csv", "report.safetensors", KINDS, KEPT)
Index = npt.NDArray[np.int64]


def save_kept(model: STSSAD, folder: Path) -> None:
    """After a fit: what a refit needs, where it can be had."""
    kept = model.fitted_.transient.kept
    if kept is not None:
        write_tensors(folder / KEPT, kept.tensors())


@dataclass(frozen=True)
class Agreement:
    """How a model's labels agree with marks: counts, shares, and their intervals."""

    threshold: float
    n_flagged: int  # of the whole pool
    true: int  # defects that are flagged
    false: int  # good ones that are
    missed: int  # defects that aren't

    @property
    def precision(self) -> tuple[float, float, float]:
        return with_interval(self.true, self.true + self.false)

    @property
    def recall(self) -> tuple[float, float, float]:
        return with_interval(self.true, self.true + self.missed)

    def content(self) -> dict[str, Any]:
        return {**vars(self), "precision": self.precision, "recall": self.recall}

    def in_words(self) -> str:
        return (
            f"{self.n_flagged} flagged; of the reviewed, precision {percent(*self.precision)}, "
            f"recall {percent(*self.recall)}"
        )


def with_interval(hits: int, n: int) -> tuple[float, float, float]:
    low, high = wilson(hits, n)
    return (hits / n if n else float("nan")), low, high


def percent(share: float, low: float, high: float) -> str:
    if np.isnan(share):
        return "unknown"
    return f"{100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f})"


@dataclass(frozen=True)
class Comparison:
    """Before and after."""

    n_good: int
    n_defects: int
    rate: float  # of false alarms, as it was asked for before anybody marked anything
    before: Agreement
    after: Agreement

    def content(self) -> dict[str, Any]:
        counts = {"n_good": self.n_good, "n_defects": self.n_defects, "rate": self.rate}
        return {**counts, "before": self.before.content(), "after": self.after.content()}


def agreement(scores: ScoreArray, threshold: float, good: Index, defects: Index) -> Agreement:
    flagged = scores > threshold
    return Agreement(
        threshold=float(threshold),
        n_flagged=int(flagged.sum()),
        true=int(flagged[defects].sum()),
        false=int(flagged[good].sum()),
        missed=int((~flagged[defects]).sum()),
    )


def places(run: Run, marks: Mapping[str, Mark]) -> tuple[Index, Index]:
    """Numbers of the pool images that are marked good, and defective."""
    number = {row.image_path: i for i, row in enumerate(run.predictions())}
    unknown = [name for name in marks if name not in number]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} is marked, but isn't in the pool of {str(run.folder)!r}; names are "
            "those of its scores.csv"
        )
    found = [
        np.array([number[m.image] for m in marks.values() if m.mark == word], dtype=np.int64)
        for word in ("good", "defect")
    ]
    return found[0], found[1]


def refitted(run: Run, marks: Mapping[str, Mark]) -> tuple[STSSAD, Comparison]:
    """The model that has learned from the marks, beside the one that hasn't."""
    good, defects = places(run, marks)
    if not len(good) and not len(defects):
        raise ValueError("nothing is marked good or defective yet, so there is nothing to learn")
    model = run.model()
    path = run.folder / KEPT
    if not path.is_file():
        raise FileNotFoundError(
            f"no {KEPT} in {str(run.folder)!r}: a refit works for runs of the pretrained method, "
            "fitted by this version"
        )
    scorer = model.model_.scorer
    with intact(path, ADVICE):
        kept = Kept.of(read_tensors(path, ADVICE))
        if isinstance(scorer, CalibratedSum):
            n_normal, n_pool = len(model.normal_scores_), len(model.decision_scores_)
            check_kept(kept, scorer, n_normal, n_pool)
    before = agreement(model.decision_scores_, model.threshold_, good, defects)
    rate = asked_rate(run, model)
    model._take(model.choices_, refit(model.fitted_, kept, good, defects, model.seed), rate)
    if len(defects) >= FEWEST_DEFECTS:
        scores = model.decision_scores_
        floor: float = model.model_.scorer.floor  # type: ignore[assignment]
        marked = (scores[good], scores[defects])
        model.set_threshold(score=reviewed_threshold(model.normal_scores_, *marked, rate, floor))
    after = agreement(model.decision_scores_, model.threshold_, good, defects)
    return model, Comparison(len(good), len(defects), rate, before, after)


def asked_rate(run: Run, model: STSSAD) -> float:
    """The false alarm rate before any refit: one refit after another doesn't move it further."""
    before = run.metadata.get("refit")
    rate = before.get("rate") if isinstance(before, dict) else None
    return rate if isinstance(rate, float) and 0 < rate < 1 else model.false_alarms_


def save_threshold(run: Run, score: float) -> int:
    """Another threshold for a run: its model, labels and page; how many images are flagged then."""
    if not np.isfinite(score):
        raise ValueError(f"a threshold must be a finite number, got {score}")
    with run.locked():
        model = run.model().set_threshold(score=float(score))
        rewrite(run, model)
        model.save(run.folder)
        write_report(run)
    return int(model.labels_.sum())


def rewrite(run: Run, model: STSSAD) -> None:
    """scores.csv, by the model as it is now."""
    paths = [Path(row.image_path) for row in run.predictions()]
    with replacing(run.folder / "scores.csv", "surrogateescape") as file:
        write_predictions(predictions(model, paths, model.decision_scores_), file, "csv")


def refit_run(run: Run, marks: Mapping[str, Mark], out: Path, command: str) -> Comparison:
    """A new run in a new folder; the old one stays as it is."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{str(out)!r} isn't empty; give --out a new folder")
    model, comparison = refitted(run, marks)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".refit-") as made:
        folder = Path(made) / "run"
        folder.mkdir()
        for name in COPIED:
            if (run.folder / name).is_file():
                shutil.copy(run.folder / name, folder / name)
        facts = {"title": out.name, "command": command, "refit_of": run.metadata["title"]}
        numbers = {"refit": comparison.content()}
        write_json(folder / "environment.json", {**run.metadata, **facts, **numbers})
        with replacing(folder / "scores.csv", "surrogateescape") as file:
            paths = [Path(row.image_path) for row in run.predictions()]
            write_predictions(predictions(model, paths, model.decision_scores_), file, "csv")
        with replacing(folder / "marks.csv", "surrogateescape") as file:
            write_marks(marks.values(), file)
        Marks(folder).take(marks.values())  # so that a next review goes on from here
        model.save(folder)
        write_report(Run.open(folder))
        if out.is_dir():
            out.rmdir()
        folder.rename(out)
    return comparison
