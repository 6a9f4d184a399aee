"""Addresses that change a run, or score an upload: threshold, names of groups, dropped images."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from starlette.concurrency import run_in_threadpool

from ..report.group_names import LONGEST_NAME
from .dependencies import RunPath
from .shelf import load_model

router = APIRouter()


@router.post("/run/{run}/threshold")
def set_threshold(folder: RunPath, score: Annotated[float, Body(embed=True)]) -> Any:
    from ..runs.refit import save_threshold
    from ..runs.run import Run

    return {"flagged": save_threshold(Run.open(folder), score)}


@router.post("/run/{run}/groups")
def rename_group(
    folder: RunPath,
    group: Annotated[int, Body(ge=0, lt=100)],
    name: Annotated[str, Body(max_length=LONGEST_NAME)],
) -> Any:
    from ..report.group_names import save_group_name

    return save_group_name(folder, group, name)


@router.post("/run/{run}/drop")
async def score_dropped(
    request: Request, folder: RunPath, file: Annotated[str, Query(max_length=400)]
) -> Any:
    """Scores of an uploaded image or archive, which is removed afterwards."""
    with tempfile.NamedTemporaryFile() as upload:
        async for chunk in request.stream():
            upload.write(chunk)
        upload.flush()
        return await run_in_threadpool(score_upload, folder, Path(upload.name), file)


def score_upload(folder: Path, path: Path, name: str) -> list[dict[str, Any]]:
    from .uploads import results

    return results(load_model(folder), path, name)
