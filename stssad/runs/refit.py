"""A reviewed run to a new one: `stssad refit`, and the studio's before and after."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..methods.refit import FEWEST_DEFECTS, RefitData, check_refit_data, refit
from ..model import STSSAD
from ..report.page import write_report
from ..review.agreement import Comparison, Index, find_labeled, measure_agreement
from ..review.labels import Label, Labels, write_labels
from ..scoring.decision import Decision
from ..scoring.threshold import reviewed_threshold
from ..storage.files import intact, read_tensors, replacing
from .fit import write_scores
from .folder import RunFolder
from .run import Run

ADVICE = "fit the run again"


def refit_model(run: Run, labels: Mapping[str, Label]) -> tuple[STSSAD, Comparison]:
    """The model, refitted with the labels, and how well it agreed with them before and after."""
    good, defects = find_labeled(run, labels)
    if not len(good) and not len(defects):
        raise ValueError("nothing is labeled good or defective yet, so there is nothing to learn")
    model = run.model()
    path = run.files.refit
    if not path.is_file():
        raise FileNotFoundError(
            f"no {path.name} in {str(run.folder)!r}: a refit works for runs of the pretrained "
            "method, fitted by this version"
        )
    with intact(path, ADVICE):
        data = RefitData.of(read_tensors(path, ADVICE))
        check_refit_data(data, model.fitted_)
    before = measure_agreement(model.decision_scores_, model.pool_threshold_, good, defects)
    refitted = refit(model.fitted_, data, good, defects, model.seed)
    model._take(model.choices_, refitted, lasting_decision(model))
    if len(defects) >= FEWEST_DEFECTS and model.decision_.source == "rates":
        model._decide(reviewed_decision(model, good, defects))
    after = measure_agreement(model.decision_scores_, model.pool_threshold_, good, defects)
    return model, Comparison(len(good), len(defects), before, after)


def lasting_decision(model: STSSAD) -> Decision:
    """What outlasts a refit: rates, and a threshold that somebody has set. One that came from
    labels is set again from all of them, by the rates of the fit: one refit after another doesn't
    move it further."""
    decision = model.decision_
    return model._requested() if decision.source == "labels" else decision


def reviewed_decision(model: STSSAD, good: Index, defects: Index) -> Decision:
    """A threshold that agrees with labels, near the one that the rates give."""
    scores, rate = model.decision_scores_, model.decision_.false_alarms or model.false_alarms
    score = reviewed_threshold(
        model.tail_, scores[good], scores[defects], rate, model.pool_threshold_
    )
    return Decision(None, None, score, "labels")


def save_threshold(run: Run, score: float) -> int:
    """Another threshold for a run: its model, labels and page; how many images are flagged then."""
    if not np.isfinite(score):
        raise ValueError(f"a threshold must be a finite number, got {score}")
    with run.files.locked():
        model = run.model().set_threshold(score=float(score))
        write_scores(run.files, model, pool_names(run))
        model.save(run.folder)
        write_report(run)
    return int(model.labels_.sum())


def pool_names(run: Run) -> list[Path]:
    return [Path(row.image_path) for row in run.predictions()]


def refit_run(run: Run, labels: Mapping[str, Label], out: Path, command: str) -> Comparison:
    """A new run in a new folder; the old one stays as it is."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{str(out)!r} isn't empty; give --out a new folder")
    model, comparison = refit_model(run, labels)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".refit-") as temporary:
        new = RunFolder(Path(temporary) / "run")
        write_refitted(run, new, model, labels)
        origin = {"title": out.name, "command": command, "refit_of": run.metadata["title"]}
        new.write_metadata({**run.metadata, **origin, "refit": comparison.content()})
        write_report(Run.open(new.path))
        if out.is_dir():
            out.rmdir()
        new.path.rename(out)
    return comparison


def write_refitted(run: Run, new: RunFolder, model: STSSAD, labels: Mapping[str, Label]) -> None:
    """The files that a refit changes, beside copies of those that it doesn't."""
    new.path.mkdir()
    for path in run.files.refitted_files:
        if path.is_file():
            shutil.copy(path, new.path / path.name)
    write_scores(new, model, pool_names(run))
    with replacing(new.used_labels, "surrogateescape") as file:
        write_labels(labels.values(), file)
    Labels(new.path).add_all(labels.values())  # so that a next review continues from here
    model.save(new.path)
