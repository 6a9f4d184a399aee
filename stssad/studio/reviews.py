"""The studio's addresses of a review: marks, lists of them, and what a refit learns from them."""

import io
import shutil
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Body, FastAPI, Query
from fastapi.responses import JSONResponse, Response

from .shelf import Shelf, check_number, opened

if TYPE_CHECKING:
    from ..review.marks import Marks

LEASE = 90  # seconds that an image is shown to one reviewer alone
AT_ONCE = 24  # images that a reviewer gets
WORDS = ("good", "defect", "unsure")


class Leases:
    """Which reviewer has which images before their eyes: two don't get the same."""

    def __init__(self) -> None:
        self._lock, self._held = threading.Lock(), dict[tuple[str, int], tuple[str, float]]()

    def take(self, run: str, order: list[int], who: str) -> list[int]:
        now, found = time.monotonic(), []
        with self._lock:
            for i in order:
                holder, until = self._held.get((run, i), ("", 0.0))
                if holder in ("", who) or until < now:
                    self._held[run, i] = (who, now + LEASE)
                    found.append(i)
                if len(found) == AT_ONCE:
                    break
        return found


def marks_of(folder: Path) -> "Marks":
    return _marks(folder, (folder / "marks.sqlite").exists())


@lru_cache(maxsize=32)
def _marks(folder: Path, _: bool) -> "Marks":
    """Prepared once: a mark is then one insertion."""
    from ..review.marks import Marks

    return Marks(folder)


def add_reviews(app: FastAPI, shelf: Shelf, leases: Leases) -> None:
    @app.get("/run/{name}/next")
    def following(name: str, who: Annotated[str, Query(max_length=80)] = "") -> Any:
        from ..review.order import proposed

        folder = shelf.existing(name)
        found, marks = opened(folder), marks_of(folder).all()
        s = found.summary
        marked = [i for i, path in enumerate(found.paths) if path in marks]
        order = proposed(s.pool_scores, s.threshold, found.material.kinds.tolist(), marked)
        counts = {word: sum(m.mark == word for m in marks.values()) for word in WORDS}
        return {"next": leases.take(name, order, who), "left": len(order), **counts}

    @app.get("/run/{name}/marks")
    def marks(name: str) -> Any:
        folder = shelf.existing(name)
        by_path = marks_of(folder).all()
        paths = opened(folder).paths
        return {i: by_path[path].mark for i, path in enumerate(paths) if path in by_path}

    @app.post("/run/{name}/marks")
    def add(
        name: str, i: Annotated[int, Body()], mark: Annotated[str, Body(max_length=10)],
        who: Annotated[str, Body(max_length=80)] = "",
    ) -> Any:  # fmt: skip
        folder = shelf.existing(name)
        paths = opened(folder).paths
        check_number(i, len(paths))
        return {"id": marks_of(folder).add(paths[i], mark, who)}

    @app.post("/run/{name}/undo")
    def undo(name: str, who: Annotated[str, Body(embed=True, max_length=80)] = "") -> Any:
        folder = shelf.existing(name)
        image = marks_of(folder).undo(who)
        paths = opened(folder).paths
        return {"i": paths.index(image) if image in paths else None}


def add_lists(app: FastAPI, shelf: Shelf) -> None:
    @app.get("/run/{name}/marks.csv")
    def marks_csv(name: str) -> Response:
        from ..review.marks import write_marks

        file = io.StringIO()
        write_marks(marks_of(shelf.existing(name)).all().values(), file)
        return csv_answer(file.getvalue(), f"{name}-marks.csv")

    @app.get("/run/{name}/list.csv")
    def spreadsheet(name: str) -> Response:
        from . import exports

        folder = shelf.existing(name)
        words = {path: m.mark for path, m in marks_of(folder).all().items()}
        return csv_answer(exports.spreadsheet(opened(folder), words), f"{name}.csv")


def csv_answer(text: str, name: str) -> Response:
    content = text.encode("utf-8", "surrogateescape")
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="text/csv; charset=utf-8", headers=headers)


def add_refits(app: FastAPI, shelf: Shelf) -> None:
    @app.post("/run/{name}/refit")
    def refit(name: str) -> Any:
        from ..review.refitting import refit_run
        from ..run import Run

        folder = shelf.existing(name)
        proposal = shelf.root / f".{name}.proposal"
        shutil.rmtree(proposal, ignore_errors=True)
        done = refit_run(Run.open(folder), marks_of(folder).all(), proposal, "stssad studio")
        before, after = opened(folder), opened(proposal)
        flagged = [set(x.summary.flagged.nonzero()[0].tolist()) for x in (before, after)]
        changed = {
            "added": sorted(flagged[1] - flagged[0]),
            "gone": sorted(flagged[0] - flagged[1]),
        }
        return JSONResponse(finite({**done.content(), **changed}))

    @app.post("/run/{name}/accept")
    def accept(name: str) -> Any:
        """Take over the refit that was looked at, as a new run."""
        shelf.existing(name)
        proposal = shelf.root / f".{name}.proposal"
        if not (proposal / "model.json").is_file():
            raise ValueError("there is no refit to take over; refit first")
        number = 2
        while (shelf.root / f"{name}-{number}").exists():
            number += 1
        new = shelf.folder(f"{name}-{number}")
        proposal.rename(new)
        return {"name": new.name}


def finite(value: Any) -> Any:
    """JSON has no NaN: what isn't known is null."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and value != value else value
