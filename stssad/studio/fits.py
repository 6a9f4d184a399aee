"""The studio's addresses of new fits: folders to choose from, begin, stop, resume."""

import threading
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query

from . import jobs
from .shelf import Shelf


def add_folders(app: FastAPI, shelf: Shelf) -> None:
    @app.get("/folders")
    def folders(path: Annotated[str, Query(max_length=4096)] = "") -> Any:
        """What is in a folder of the user's, to choose from; without a path, where to begin."""
        return shelf.listing(path) if path else shelf.beginnings()


def add_fits(app: FastAPI, shelf: Shelf) -> None:
    one = threading.Lock()

    @app.get("/runs")
    def runs() -> Any:
        return [
            {"name": entry.name, "state": entry.state, "images": entry.facts.get("n_unlabeled"),
             "progress": None if entry.state in ("finished", "damaged")
             else jobs.progress_of(shelf.folder(entry.name))}
            for entry in shelf.entries()
        ]  # fmt: skip

    def begin(folder: Path, normal: str, unlabeled: str, resume: bool) -> None:
        with one:
            busy = [entry.name for entry in shelf.entries() if entry.state == "running"]
            if busy:
                raise ValueError(
                    f"{busy[0]!r} is being fitted; one fit at a time: wait, or stop it"
                )
            jobs.start(folder, shelf.allowed(normal), shelf.allowed(unlabeled), resume)

    @app.post("/fit")
    def fit(
        name: Annotated[str, Body(max_length=80)], normal: Annotated[str, Body(max_length=4096)],
        unlabeled: Annotated[str, Body(max_length=4096)],
    ) -> Any:  # fmt: skip
        folder = shelf.folder(name)
        if folder.exists():
            raise ValueError(f"there is something called {name!r} already; give another name")
        for each in (normal, unlabeled):
            if not shelf.allowed(each).is_dir():
                raise ValueError(f"there is no folder {each!r}; check the path")
        begin(folder, normal, unlabeled, resume=False)
        return {"name": name}

    @app.post("/run/{name}/resume")
    def resume(name: str) -> Any:
        folder = shelf.existing(name)
        if (folder / "model.json").is_file():
            raise ValueError(f"{name!r} is finished")
        from ..storage import read_json

        asked = read_json(folder / "environment.json", "fit it again").get("request", {})
        begin(folder, str(asked.get("normal", "")), str(asked.get("unlabeled", "")), resume=True)
        return {"name": name}

    @app.post("/run/{name}/stop")
    def stop(name: str) -> Any:
        if not jobs.stop(shelf.existing(name)):
            raise ValueError(f"{name!r} isn't being fitted")
        return {"name": name}
