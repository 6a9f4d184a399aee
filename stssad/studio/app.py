"""The studio's addresses. What a request asks for is looked up, checked and handed on."""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Body, FastAPI, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

from ..report.kind_names import LONGEST_NAME
from ..storage import json_text
from . import jobs
from .guard import Guard
from .shelf import NotHereError, Shelf, large_image, model_of, opened

if TYPE_CHECKING:
    from ..review.marks import Marks

HERE, REPORT = Path(__file__).parent / "pages", Path(__file__).parent.parent / "report"
FILES = {
    "gallery.js": (REPORT / "gallery.js", "text/javascript"),
    "style.css": (REPORT / "style.css", "text/css"),
    "studio.js": (HERE / "studio.js", "text/javascript"),
    "studio.css": (HERE / "studio.css", "text/css"),
}
LEASE = 90  # seconds that an image is shown to one reviewer alone
AT_ONCE = 24  # images that a reviewer gets


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


def create_app(shelf: Shelf, token: str, hosts: set[str]) -> Guard:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(ValueError, said)
    app.add_exception_handler(OSError, said)
    add_reviews(app, shelf, Leases())
    for add in (add_pages, add_runs, add_changes, add_kinds, add_exports, add_lists, add_refits,
                add_folders, add_fits):  # fmt: skip
        add(app, shelf)
    return Guard(app, token, hosts)


async def said(request: Request, error: Exception) -> Response:
    """An error that a user can mend, as a sentence."""
    status = 404 if isinstance(error, NotHereError | FileNotFoundError) else 400
    return JSONResponse({"error": str(error)}, status)


def add_pages(app: FastAPI, shelf: Shelf) -> None:
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True)

    def page(template: str, **facts: Any) -> HTMLResponse:
        return HTMLResponse(environment.get_template(template).render(facts))

    @app.get("/")
    def index() -> Response:
        facts = {"runs": shelf.entries(), "images": [str(x) for x in shelf.images]}
        answer = page("index.html", **facts)
        answer.background = BackgroundTask(warm)
        return answer

    @app.get("/run/{name}")
    def run(name: str) -> Response:
        folder = shelf.existing(name)
        return page("run.html", name=name, finished=(folder / "model.json").is_file())

    @app.get("/files/{name}")
    def file(name: str) -> Response:
        if name not in FILES:
            raise NotHereError(f"no such file: {name!r}")
        path, kind = FILES[name]
        return Response(path.read_bytes(), media_type=kind)


def warm() -> None:
    """What a run's page needs, while the first page is looked at."""
    from .. import model  # noqa: F401
    from ..report import page  # noqa: F401


def add_runs(app: FastAPI, shelf: Shelf) -> None:
    @app.get("/run/{name}/data")
    def data(name: str) -> Any:
        from ..report.kind_names import kind_names
        from ..report.page import gallery_data
        from ..report.presentation import finding, headline

        found = opened(shelf.existing(name))
        s = found.summary
        addresses: Callable[[int], tuple[str, str]] = lambda i: (  # noqa: E731
            f"/run/{name}/thumb/{i}", f"/run/{name}/image/{i}"
        )  # fmt: skip
        told = gallery_data(s, found.material, addresses, kind_names(found.run.folder))
        words = {"headline": headline(s), "finding": finding(s), "warnings": s.warnings}
        return Response(json_text({**told, **words}), media_type="application/json")

    @app.get("/run/{name}/thumb/{i}")
    def thumb(name: str, i: int) -> Response:
        material = opened(shelf.existing(name)).material
        check_number(i, len(material.names))
        kept = {"cache-control": "private, max-age=3600"}
        return Response(material.thumbnail(i), media_type="image/jpeg", headers=kept)

    @app.get("/run/{name}/image/{i}")
    def image(name: str, i: int) -> Response:
        found = opened(shelf.existing(name))
        check_number(i, len(found.paths))
        try:
            path = shelf.allowed(found.material.files[i])
            content = large_image(path, lambda side: reading_of(found.summary.settings, side))
        except (ValueError, OSError):  # gone, or not to be seen: what the run has kept
            content = found.material.thumbnail(i)
        return Response(content, media_type="image/jpeg")


def add_changes(app: FastAPI, shelf: Shelf) -> None:
    @app.post("/run/{name}/threshold")
    def threshold(name: str, score: Annotated[float, Body(embed=True)]) -> Any:
        from ..review.refitting import save_threshold
        from ..run import Run

        return {"flagged": save_threshold(Run.open(shelf.existing(name)), score)}

    @app.post("/run/{name}/drop")
    async def drop(request: Request, name: str, file: Annotated[str, Query(max_length=400)]) -> Any:
        folder = shelf.existing(name)
        with tempfile.NamedTemporaryFile() as kept:
            async for some in request.stream():
                kept.write(some)
            kept.flush()
            return await run_in_threadpool(dropped, folder, Path(kept.name), file)


def add_kinds(app: FastAPI, shelf: Shelf) -> None:
    @app.post("/run/{name}/kinds")
    def named(
        name: str, kind: Annotated[int, Body(ge=0, lt=100)],
        words: Annotated[str, Body(max_length=LONGEST_NAME)],
    ) -> Any:  # fmt: skip
        from ..report.kind_names import name_kind

        return name_kind(shelf.existing(name), kind, words)


def add_exports(app: FastAPI, shelf: Shelf) -> None:
    @app.get("/run/{name}/report.html")
    def report(name: str) -> Response:
        from ..report.kind_names import is_newer
        from ..report.page import write_report
        from ..run import Run

        run = Run.open(shelf.existing(name))
        if is_newer(run.folder, run.report):
            write_report(run)
        return FileResponse(run.report, filename=f"{name}.html")

    @app.get("/run/{name}/flagged.zip")
    def flagged(name: str) -> Response:
        from .exports import flagged_archive

        found = opened(shelf.existing(name))
        with tempfile.NamedTemporaryFile(delete=False) as file:
            flagged_archive(shelf, found, file)
        return taken_away(Path(file.name), f"{name}-flagged.zip")

    @app.get("/run/{name}/model.onnx")
    def onnx(name: str) -> Response:
        from ..exported import export_onnx

        folder = shelf.existing(name)
        with tempfile.NamedTemporaryFile(delete=False) as file:
            path = Path(file.name)
        export_onnx(model_of(folder), path, {"run": name})
        return taken_away(path, f"{name}.onnx")


def reading_of(settings: dict[str, Any], side: int) -> Any:
    from ..settings import Reading

    return Reading(side, "stretch", settings.get("white_level"))


def dropped(folder: Path, path: Path, name: str) -> list[dict[str, Any]]:
    from .uploads import results

    return results(model_of(folder), path, name)


def taken_away(path: Path, name: str) -> Response:
    remove = BackgroundTask(lambda: path.unlink(missing_ok=True))
    return FileResponse(path, filename=name, background=remove)


def check_number(i: int, n: int) -> None:
    if not 0 <= i < n:
        raise NotHereError(f"there is no image {i}")


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
        import io

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


WORDS = ("good", "defect", "unsure")


def finite(value: Any) -> Any:
    """JSON has no NaN: what isn't known is null."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and value != value else value


def csv_answer(text: str, name: str) -> Response:
    content = text.encode("utf-8", "surrogateescape")
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="text/csv; charset=utf-8", headers=headers)


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
