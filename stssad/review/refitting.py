"""A reviewed run to a new one: `stssad refit`, and the studio's before and after."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..methods.refit import Kept, refit
from ..model import STSSAD
from ..predictions import predictions, write_predictions
from ..report.kind_names import FILE as KINDS
from ..report.page import write_report
from ..run import Run
from ..scoring.threshold import ScoreArray
from ..storage import intact, read_tensors, replacing, write_json, write_tensors
from .marks import Mark, write_marks
from .order import wilson

KEPT = "refit.safetensors"
ADVICE = "fit the run again"
RATES = (0.002, 0.05)  # false alarm rates between which marks may move the threshold
FEWEST_DEFECTS = 5  # from which on they may
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
    before: Agreement
    after: Agreement

    def content(self) -> dict[str, Any]:
        counts = {"n_good": self.n_good, "n_defects": self.n_defects}
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
    with intact(path, ADVICE):
        kept = Kept.of(read_tensors(path, ADVICE))
    before = agreement(model.decision_scores_, model.threshold_, good, defects)
    rate = model.false_alarms_
    model._take(model.choices_, refit(model.fitted_, kept, good, defects, model.seed), rate)
    if len(defects) >= FEWEST_DEFECTS:
        model.set_threshold(best_rate(model, good, defects))
    after = agreement(model.decision_scores_, model.threshold_, good, defects)
    return model, Comparison(len(good), len(defects), before, after)


def best_rate(model: STSSAD, good: Index, defects: Index) -> float:
    """The false alarm rate whose threshold errs least on what was reviewed; the one there is, where
    others are no better."""
    before, scores = model.false_alarms_, model.decision_scores_

    def errors(rate: float) -> int:
        threshold = model.set_threshold(rate).threshold_
        found = agreement(scores, threshold, good, defects)
        return found.false + found.missed

    low, high = (np.log(rate) for rate in RATES)
    rates = [before, *np.exp(np.linspace(low, high, 30)).tolist()]
    best: float = min(rates, key=lambda rate: (errors(rate), abs(np.log(rate / before))))
    return best


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
        model.save(folder)
        write_report(Run.open(folder))
        if out.is_dir():
            out.rmdir()
        folder.rename(out)
    return comparison
