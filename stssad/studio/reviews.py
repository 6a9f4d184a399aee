"""Addresses of a review: which images come next, people's labels, and refits with them."""

import shutil
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, Query
from fastapi.responses import JSONResponse

from ..runs.folder import RunFolder
from .dependencies import LeasesOfApp, RunPath, ShelfOfApp
from .shelf import check_number, open_run

if TYPE_CHECKING:
    from ..review.labels import Labels

router = APIRouter()


def open_labels(folder: Path) -> "Labels":
    return _open_labels(folder, RunFolder(folder).labels.exists())


@lru_cache(maxsize=32)
def _open_labels(folder: Path, _: bool) -> "Labels":
    """Prepared once: a label is then one insertion."""
    from ..review.labels import Labels

    return Labels(folder)


@router.get("/run/{run}/next")
def propose_images(
    run: str,
    folder: RunPath,
    leases: LeasesOfApp,
    who: Annotated[str, Query(max_length=80)] = "",
) -> Any:
    """Images worth a label that no other reviewer has on the screen, and counts of labels."""
    from ..review.labels import LABELS
    from ..review.order import propose_order

    opened, labels = open_run(folder), open_labels(folder).all()
    summary, groups = opened.summary, opened.material.groups.tolist()
    labeled = [i for i, path in enumerate(opened.paths) if path in labels]
    order = propose_order(summary.pool_scores, summary.pool_threshold, groups, labeled)
    counts = {label: sum(each.label == label for each in labels.values()) for label in LABELS}
    return {"next": leases.take(run, order, who), "left": len(order), **counts}


@router.get("/run/{run}/labels")
def list_labels(folder: RunPath) -> Any:
    labels, paths = open_labels(folder).all(), open_run(folder).paths
    return {i: labels[path].label for i, path in enumerate(paths) if path in labels}


@router.post("/run/{run}/labels")
def add_label(
    folder: RunPath,
    i: Annotated[int, Body()],
    label: Annotated[str, Body(max_length=10)],
    who: Annotated[str, Body(max_length=80)] = "",
) -> Any:
    paths = open_run(folder).paths
    check_number(i, len(paths))
    return {"id": open_labels(folder).add(paths[i], label, who)}


@router.post("/run/{run}/undo")
def undo_label(folder: RunPath, who: Annotated[str, Body(embed=True, max_length=80)] = "") -> Any:
    """Remove this reviewer's last label; which image it was on."""
    image, paths = open_labels(folder).undo(who), open_run(folder).paths
    return {"i": paths.index(image) if image in paths else None}


@router.post("/run/{run}/refit")
def refit(run: str, folder: RunPath, shelf: ShelfOfApp) -> Any:
    """A refit beside the run, to compare with it; it becomes a run once it is accepted."""
    from ..runs.refit import refit_run
    from ..runs.run import Run

    proposal = RunFolder(folder).proposal.path
    shutil.rmtree(proposal, ignore_errors=True)
    labels = open_labels(folder).all()
    comparison = refit_run(Run.open(folder), labels, proposal, "stssad studio")
    before, after = (
        set(each.summary.flagged.nonzero()[0].tolist())
        for each in (open_run(folder), open_run(proposal))
    )
    changes = {"added": sorted(after - before), "gone": sorted(before - after)}
    text = comparison.summarise()
    return JSONResponse(without_nan({**comparison.content(), **changes, "summary": text}))


@router.post("/run/{run}/accept")
def accept_refit(run: str, folder: RunPath, shelf: ShelfOfApp) -> Any:
    """The refit becomes a run of its own; the old one stays."""
    proposal = RunFolder(folder).proposal
    if not proposal.has_model:
        raise ValueError("there is no refit to accept; refit first")
    number = 2
    while (shelf.root / f"{run}-{number}").exists():
        number += 1
    new = shelf.folder(f"{run}-{number}")
    proposal.path.rename(new)
    return {"name": new.name}


def without_nan(value: Any) -> Any:
    """JSON has no NaN: what is unknown is null."""
    if isinstance(value, dict):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and value != value else value
