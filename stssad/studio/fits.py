"""Addresses of fits: folders to choose from, start, stop, resume."""

import threading
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query

from ..runs.folder import RunFolder
from ..runs.request import FitRequest, request_in
from . import jobs
from .dependencies import RunPath, ShelfOfApp
from .shelf import Entry, Shelf

STARTING = threading.Lock()  # two requests at once don't start two fits
LongPath = Annotated[str, Body(max_length=4096)]
router = APIRouter()


@router.get("/folders")
def list_folders(shelf: ShelfOfApp, path: Annotated[str, Query(max_length=4096)] = "") -> Any:
    """The folders and images in a folder; without a path, the folders given at the start."""
    return shelf.list_folder(path) if path else shelf.list_roots()


@router.get("/runs")
def list_runs(shelf: ShelfOfApp) -> Any:
    return [describe_run(shelf, entry) for entry in shelf.entries()]


def describe_run(shelf: Shelf, entry: Entry) -> dict[str, Any]:
    settled = entry.state in ("finished", "damaged")
    return {
        "name": entry.name,
        "state": entry.state,
        "images": entry.metadata.get("n_unlabeled"),
        "progress": None if settled else jobs.progress_of(RunFolder(shelf.folder(entry.name))),
    }


@router.post("/fit")
def start_fit(
    shelf: ShelfOfApp,
    name: Annotated[str, Body(max_length=80)],
    normal: LongPath,
    unlabeled: LongPath,
) -> Any:
    folder = shelf.folder(name)
    if folder.exists():
        raise ValueError(f"{name!r} exists already; choose another name")
    for each in (normal, unlabeled):
        if not shelf.allowed(each).is_dir():
            raise ValueError(f"there is no folder {each!r}; check the path")
    start_job(shelf, folder, FitRequest.of(shelf.allowed(normal), shelf.allowed(unlabeled)))
    return {"name": name}


@router.post("/run/{run}/resume")
def resume_fit(run: str, folder: RunPath, shelf: ShelfOfApp) -> Any:
    """As the run was begun, whoever began it."""
    if RunFolder(folder).state == "finished":
        raise ValueError(f"{run!r} is finished")
    request = request_in(RunFolder(folder))
    for each in (request.normal, request.unlabeled):
        shelf.allowed(str(each))
    start_job(shelf, folder)
    return {"name": run}


@router.post("/run/{run}/stop")
def stop_fit(run: str, folder: RunPath) -> Any:
    if not RunFolder(folder).stop():
        raise ValueError(f"{run!r} is not being fitted")
    return {"name": run}


def start_job(shelf: Shelf, folder: Path, request: FitRequest | None = None) -> None:
    with STARTING:
        busy = [entry.name for entry in shelf.entries() if entry.state == "running"]
        if busy:
            raise ValueError(f"{busy[0]!r} is being fitted; one fit at a time: wait, or stop it")
        jobs.start(RunFolder(folder), request)
