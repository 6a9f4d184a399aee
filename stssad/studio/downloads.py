"""Addresses of the Export tab: files to download."""

import io
import tempfile
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response
from starlette.background import BackgroundTask

from .dependencies import RunPath, ShelfOfApp
from .reviews import open_labels
from .shelf import load_model, open_run

router = APIRouter()


@router.get("/run/{run}/report.html")
def send_report(run: str, folder: RunPath) -> Response:
    from ..report.group_names import is_newer
    from ..report.page import write_report
    from ..runs.run import Run

    opened = Run.open(folder)
    if is_newer(opened.folder, opened.report):
        write_report(opened)
    return FileResponse(opened.report, filename=f"{run}.html")


@router.get("/run/{run}/flagged.zip")
def send_flagged(run: str, folder: RunPath, shelf: ShelfOfApp) -> Response:
    from .exports import write_flagged

    opened = open_run(folder)
    with tempfile.NamedTemporaryFile(delete=False) as file:
        write_flagged(shelf, opened, file)
    return send_and_remove(Path(file.name), f"{run}-flagged.zip")


@router.get("/run/{run}/model.onnx")
def send_onnx(run: str, folder: RunPath) -> Response:
    from ..deploy.export import export_onnx

    with tempfile.NamedTemporaryFile(delete=False) as file:
        path = Path(file.name)
    export_onnx(load_model(folder), path, {"run": run})
    return send_and_remove(path, f"{run}.onnx")


@router.get("/run/{run}/labels.csv")
def send_labels(run: str, folder: RunPath) -> Response:
    """In the form that `stssad review` reads."""
    from ..review.labels import write_labels

    file = io.StringIO()
    write_labels(open_labels(folder).all().values(), file)
    return send_csv(file.getvalue(), f"{run}-labels.csv")


@router.get("/run/{run}/list.csv")
def send_list(run: str, folder: RunPath) -> Response:
    """All images and what is known of them, for a spreadsheet."""
    from .exports import format_list

    labels = {path: label.label for path, label in open_labels(folder).all().items()}
    return send_csv(format_list(open_run(folder), labels), f"{run}.csv")


def send_csv(text: str, name: str) -> Response:
    content = text.encode("utf-8", "surrogateescape")
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="text/csv; charset=utf-8", headers=headers)


def send_and_remove(path: Path, name: str) -> Response:
    """A temporary file, removed once it is sent."""
    remove = BackgroundTask(lambda: path.unlink(missing_ok=True))
    return FileResponse(path, filename=name, background=remove)
