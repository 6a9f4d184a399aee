"""Fits in a process of their own: the page answers while they run, and they outlive the server.

All that is known of a fit is on the disk: the run's lock says that somebody works on it, and
progress.json how far it is.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PROGRESS = "progress.json"
LOG = "fit.log"
MINE = "stssad.studio.worker"  # in the command line of a worker
SHARES = (0.3, 0.6, 0.1)  # of a fit's time: encoding, tuning, the rest


def is_running(folder: Path) -> bool:
    """Whether a process has the run's lock."""
    return worker_of(folder) is not None


def worker_of(folder: Path) -> int | None:
    """The process that works on a run, if it is one of the studio's or of `stssad fit`."""
    try:
        number = int((folder / ".lock").read_text().strip())
    except (OSError, ValueError):
        number = _starting(folder)
    if number <= 1:
        return None
    try:
        words = Path(f"/proc/{number}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    return number if "stssad" in words else None


def _starting(folder: Path) -> int:
    """A worker that reads images and has no lock yet."""
    try:
        return int(json.loads((folder / PROGRESS).read_text()).get("pid", 0))
    except (OSError, ValueError, AttributeError, TypeError):
        return 0


def start(folder: Path, normal: Path, unlabeled: Path, resume: bool) -> None:
    """Begin a fit, or go on with one that was stopped."""
    folder.mkdir(parents=True, exist_ok=resume)
    words = ["resume" if resume else "new", str(normal), str(unlabeled), str(folder)]
    if not resume:  # so that it is in the list of runs at once
        asked = {"normal": str(normal), "unlabeled": str(unlabeled)}
        facts = {"title": folder.name, "command": "", "request": asked}
        (folder / "environment.json").write_text(json.dumps(facts), "utf-8")
    code = f"from {MINE} import main; main()"
    with open(folder.parent / f".{folder.name}.{LOG}", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,  # it goes on when the server is killed
        )  # fmt: skip
    begun = {"began": time.time(), "bars": {}, "error": "", "pid": process.pid}
    (folder / PROGRESS).write_text(json.dumps(begun), "utf-8")
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie keeps its number


def stop(folder: Path) -> bool:
    """As Ctrl-C would: it can be resumed."""
    number = worker_of(folder)
    if number is None:
        return False
    os.kill(number, signal.SIGTERM)
    return True


def progress_of(folder: Path) -> dict[str, Any]:
    """How far a fit is: bars, seconds so far and left, and an error if it ended with one."""
    try:
        found = json.loads((folder / PROGRESS).read_text())
        bars = found.get("bars", {})
        share = share_done(bars)
        seconds = time.time() - float(found["began"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return {"bars": {}, "share": 0.0, "seconds": 0, "left": None, "error": ""}
    left = seconds * (1 - share) / share if share > 0.05 else None
    return {"bars": bars, "share": share, "seconds": round(seconds), "left": left and round(left),
            "error": str(found.get("error", ""))}  # fmt: skip


def share_done(bars: dict[str, list[int]]) -> float:
    """Of the whole fit, by what usually takes how long."""
    stages = {name: done / max(1, most) for name, (done, most) in bars.items()}
    tuning = [share for name, share in stages.items() if name.startswith("restart")]
    encoding = [share for name, share in stages.items() if name.startswith("encoding")]
    rest = [share for name, share in stages.items() if name.startswith("fitting")]
    parts = (sum(encoding) / 3, sum(tuning) / max(4, len(tuning)), sum(rest))
    return min(0.99, sum(w * min(1.0, part) for w, part in zip(SHARES, parts, strict=True)))
