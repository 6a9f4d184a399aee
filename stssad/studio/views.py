"""Addresses that show something: the pages, their files, and the images of a run."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from starlette.background import BackgroundTask

from ..runs.folder import RunFolder
from ..storage.files import json_text
from .dependencies import RunPath, ShelfOfApp
from .shelf import NotHereError, check_number, encode_large_image, open_run

if TYPE_CHECKING:
    from jinja2 import Environment

HERE, REPORT = Path(__file__).parent / "pages", Path(__file__).parent.parent / "report"
FILES = {
    "gallery.js": (REPORT / "gallery.js", "text/javascript"),
    "style.css": (REPORT / "style.css", "text/css"),
    "studio.js": (HERE / "studio.js", "text/javascript"),
    "studio.css": (HERE / "studio.css", "text/css"),
}
router = APIRouter()


@router.get("/")
def show_runs(shelf: ShelfOfApp) -> Response:
    folders = [str(folder) for folder in shelf.images]
    page = render("index.html", runs=shelf.entries(), images=folders)
    page.background = BackgroundTask(import_ahead)
    return page


@router.get("/run/{run}")
def show_run(run: str, folder: RunPath) -> Response:
    return render("run.html", name=run, finished=RunFolder(folder).has_model)


@router.get("/files/{name}")
def send_file(name: str) -> Response:
    if name not in FILES:
        raise NotHereError(f"no such file: {name!r}")
    path, media_type = FILES[name]
    return Response(path.read_bytes(), media_type=media_type)


@router.get("/run/{run}/data")
def send_data(run: str, folder: RunPath) -> Response:
    """What the gallery shows, and the sentences above it."""
    from ..report.page import build_gallery, list_remarks, read_notes
    from ..report.presentation import format_finding, format_headline

    opened = open_run(folder)
    summary = opened.summary

    def address(i: int) -> tuple[str, str]:
        return f"/run/{run}/thumb/{i}", f"/run/{run}/image/{i}"

    content = {
        **build_gallery(summary, opened.material, address, read_notes(opened.run)),
        "headline": format_headline(summary),
        "finding": format_finding(summary),
        "warnings": [*summary.warnings, *map(str, list_remarks(opened.run.metadata))],
    }
    return Response(json_text(content), media_type="application/json")


@router.get("/run/{run}/thumb/{i}")
def send_thumbnail(i: int, folder: RunPath) -> Response:
    material = open_run(folder).material
    check_number(i, len(material.names))
    headers = {"cache-control": "private, max-age=3600"}
    return Response(material.thumbnail(i), media_type="image/jpeg", headers=headers)


@router.get("/run/{run}/image/{i}")
def send_image(i: int, folder: RunPath, shelf: ShelfOfApp) -> Response:
    """The whole file, large; its thumbnail where it has gone, or may not be seen."""
    opened = open_run(folder)
    check_number(i, len(opened.paths))
    try:
        path = shelf.allowed(opened.material.files[i])
        content = encode_large_image(path, opened.summary.settings["white_level"])
    except (ValueError, OSError):
        content = opened.material.thumbnail(i)
    return Response(content, media_type="image/jpeg")


def render(template: str, **content: Any) -> HTMLResponse:
    return HTMLResponse(templates().get_template(template).render(content))


@cache
def templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader

    return Environment(loader=FileSystemLoader(HERE), autoescape=True)


def import_ahead() -> None:
    """What a run's page needs, while the first page is read."""
    from .. import model  # noqa: F401
    from ..report import page  # noqa: F401
