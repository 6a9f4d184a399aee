"""The studio's addresses. What a request asks for is looked up, checked and handed on."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

from ..report.kind_names import LONGEST_NAME
from ..storage import json_text
from .fits import add_fits, add_folders
from .guard import Guard
from .reviews import Leases, add_lists, add_refits, add_reviews
from .shelf import NotHereError, Shelf, check_number, large_image, model_of, opened

HERE, REPORT = Path(__file__).parent / "pages", Path(__file__).parent.parent / "report"
FILES = {
    "gallery.js": (REPORT / "gallery.js", "text/javascript"),
    "style.css": (REPORT / "style.css", "text/css"),
    "studio.js": (HERE / "studio.js", "text/javascript"),
    "studio.css": (HERE / "studio.css", "text/css"),
}


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
