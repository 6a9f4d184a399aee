"""Fits in a process of their own: the page answers while they run, and they outlive the server.

All that is known of a fit is in the run's folder: its lock says that somebody works on it, and its
progress how far it is.
"""

import json
import shlex
import subprocess
import sys
import threading
import time
from typing import Any

from ..runs.environment import environment
from ..runs.folder import RunFolder
from ..runs.request import FitRequest
from ..storage.files import write_json

WORKER = "stssad.studio.worker"
STARTING = 20  # seconds that a worker may take until it has the run's lock


def start(run: RunFolder, request: FitRequest | None = None) -> None:
    """Begin a fit, or resume one as its run has it, if there is no request."""
    if request is not None:  # so that it is in the list of runs at once
        asked = {"command": command_for(run, request), "request": request.content()}
        run.write_metadata({"title": run.path.name, **asked, **environment()})
    write_json(run.progress, {"began": time.time(), "bars": {}, "share": 0.0, "error": ""})
    code = f"from {WORKER} import main; main()"
    with open(run.log, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # it goes on when the server is killed
        )
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie stays
    end = time.monotonic() + STARTING
    while not run.is_locked and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)


def command_for(run: RunFolder, request: FitRequest) -> str:
    """That would do the same at a terminal."""
    arguments = ["--normal", request.normal, "--unlabeled", request.unlabeled, "--out", run.path]
    return shlex.join(["stssad", "fit", *map(str, arguments)])


def progress_of(run: RunFolder) -> dict[str, Any]:
    """How far a fit is: bars, seconds so far and left, and an error if it ended with one."""
    try:
        content = json.loads(run.progress.read_text("utf-8"))
        bars, share = dict(content.get("bars", {})), float(content.get("share", 0.0))
        seconds = time.time() - float(content["began"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return {"bars": {}, "share": 0.0, "seconds": 0, "left": None, "error": ""}
    left = round(seconds * (1 - share) / share) if share > 0.05 else None
    return {
        "bars": bars,
        "share": share,
        "seconds": round(seconds),
        "left": left,
        "error": str(content.get("error", "")),
    }
