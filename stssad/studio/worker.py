"""The process of one fit, started by the studio."""

import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ..storage import write_json
from .jobs import PROGRESS

PAUSE = 0.25  # seconds between two words about progress


class Teller:
    """Writes down how far the fit is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.began, self.last = folder, time.time(), 0.0
        self.bars: dict[str, list[int]] = {}
        self.write()

    def write(self, error: str = "") -> None:
        facts = {"began": self.began, "bars": self.bars, "error": error, "pid": os.getpid()}
        write_json(self.folder / PROGRESS, facts)

    def __call__(self, event: Any) -> None:
        name = event.stage or f"restart {event.number + 1}, {event.augmentation}"
        self.bars[name] = [event.n_done, event.n_most]
        if time.monotonic() - self.last >= PAUSE or event.n_done == event.n_most:
            self.last = time.monotonic()
            self.write()


def main() -> None:
    how, normal, unlabeled, out = sys.argv[1:]

    def terminate(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, terminate)
    folder = Path(out)
    teller = Teller(folder)
    try:
        fit(folder, Path(normal), Path(unlabeled), how == "resume", teller)
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        teller.write(str(error))
        sys.exit(2)
    (folder / PROGRESS).unlink(missing_ok=True)


def fit(folder: Path, normal: Path, unlabeled: Path, resume: bool, teller: Teller) -> None:
    from ..model import STSSAD
    from ..run import Request, Run, environment, read_inputs
    from ..workflow import fit_run

    request = Request(normal, unlabeled, STSSAD(jobs=os.cpu_count() or 1))
    command = shlex.join(["stssad", "fit", "--normal", str(normal), "--unlabeled", str(unlabeled),
                          "--out", str(folder)])  # fmt: skip
    inputs = read_inputs(request, lambda error: None)
    facts = {"title": folder.name, "command": command, "request": request.content()}
    write_json(folder / "environment.json", {**facts, **environment()})
    run = Run.create(folder, request, command, resume=True)
    fit_run(run, request, inputs, teller)
