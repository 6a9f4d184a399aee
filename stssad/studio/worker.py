"""The process of one fit, started by the studio: it does what the run's folder asks for."""

import signal
import sys
import time
from pathlib import Path

from ..runs.folder import RunFolder
from ..storage.files import write_json
from ..tuning.progress import Event, Phase

PAUSE = 0.25  # seconds between two reports of progress
# Of a fit's time, and how many bars a phase has at least.
SHARES = {Phase.ENCODING: (0.3, 3), Phase.SCORING: (0.1, 1), Phase.TUNING: (0.6, 4)}


class ProgressFile:
    """Writes down how far the fit is."""

    def __init__(self, run: RunFolder) -> None:
        self.path, self.began, self.last = run.progress, time.time(), 0.0
        self.bars: dict[str, list[int]] = {}
        self.phases: dict[str, Phase] = {}  # of the bars
        self.write()

    def write(self, error: str = "") -> None:
        share = share_done(self.bars, self.phases)
        progress = {"began": self.began, "bars": self.bars, "share": share, "error": error}
        write_json(self.path, progress)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def __call__(self, event: Event) -> None:
        self.phases[event.label] = event.phase
        self.bars[event.label] = [event.n_done, event.n_most]
        if time.monotonic() - self.last >= PAUSE or event.n_done == event.n_most:
            self.last = time.monotonic()
            self.write()


def share_done(bars: dict[str, list[int]], phases: dict[str, Phase]) -> float:
    """Of the whole fit, by what usually takes how long."""
    total = 0.0
    for phase, (weight, n_least) in SHARES.items():
        done = [n / max(1, most) for label, (n, most) in bars.items() if phases[label] == phase]
        total += weight * min(1.0, sum(done) / max(n_least, len(done)))
    return min(0.99, total)


def main() -> None:
    (path,) = sys.argv[1:]

    def terminate(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, terminate)
    run = RunFolder(Path(path))
    with run.locked():  # before anything slow is imported: the studio waits for it
        progress = ProgressFile(run)
        try:
            resume(run, progress)
        except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
            progress.write(str(error))
            sys.exit(2)
        progress.remove()


def resume(run: RunFolder, progress: ProgressFile) -> None:
    """What the run lacks, by its own request."""
    from ..runs.fit import complete, fit_or_explain, read_inputs
    from ..runs.request import check_same, request_in

    before = request_in(run)
    if run.has_model and (run.is_complete or not before.explain):
        complete(run)
        return
    request, inputs = read_inputs(before, lambda error: None)
    check_same(before.content(), request, run.path)
    fit_or_explain(run, request, inputs, progress)
