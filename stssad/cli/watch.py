"""`stssad watch`: a run and a folder to a CSV that grows as images arrive."""

import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import Engine, check_device, make_console, warn
from .score import opened

if TYPE_CHECKING:
    from ..watch import Watched

LONGEST_CALL = 60  # seconds that a command of the user's may take


def command(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
    folder: Annotated[Path, typer.Argument(help="Folder in which images arrive.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV that lines are added to; else watch.csv in the run.")
    ] = None,
    on_anomaly: Annotated[
        str | None,
        typer.Option(help="Command to call for each flagged image; {path} and {score} are filled "
                     "in, else the path is its last word."),
    ] = None,
    false_alarms: Annotated[
        float | None, typer.Option(help="False alarm rate, instead of the one of the fit.")
    ] = None,
    drift: Annotated[
        bool, typer.Option("--drift/--no-drift", help="Say when the line has changed.")
    ] = True,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    engine: Engine = "auto",
) -> None:  # fmt: skip
    """Score images as they arrive in a folder; stop with Ctrl-C, go on by starting again."""
    from ..engine import engine_for
    from ..watch import Log, Watcher, watched

    check_device(device)
    if not folder.is_dir():
        raise NotADirectoryError(f"no such folder: {str(folder)!r}; give one to watch")
    call = None if on_anomaly is None else Call(on_anomaly)
    model = opened(run, device, false_alarms)
    log = Log(out or run / "watch.csv")
    watcher = Watcher(model, engine_for(model, engine, None), log, drift)
    console, told = make_console(), watcher.drift is not None
    known = f", {len(log.rows)} images are known" if log.rows else ""
    console.print(f"watching {folder}{known}; lines go to {log.path} (Ctrl-C stops)")
    if drift and watcher.monitor is None:
        warn("drift isn't watched for: the run has scores of too few normal images")
    if told:
        warn(str(watcher.drift))
    try:
        for rows in watched(folder, watcher):
            for row in rows:
                show(row, call)
            if watcher.drift is not None and not told:
                told = True
                warn(str(watcher.drift))
    except KeyboardInterrupt:
        console.print(f"stopped; {len(watcher.done)} images are in {log.path}")
    finally:
        log.close()
        if call is not None:
            call.close()


def show(row: "Watched", call: "Call | None") -> None:
    """A flagged image, or one that can't be read."""
    if row.error:
        warn(row.error)
    elif row.pred_label:
        typer.echo(f"anomaly: {row.image_path} (score {row.pred_score:.2f}, p {row.p_value:.3g})")
        if call is not None:
            call(row)


class Call:
    """A command of the user's, one call after another, while scoring goes on. No shell reads it:
    a file's name can't be a command."""

    def __init__(self, words: str) -> None:
        try:
            self.words = shlex.split(words)
        except ValueError as error:
            raise ValueError(f"--on-anomaly {words!r} is no command: {error}") from None
        if not self.words or shutil.which(self.words[0]) is None:
            raise ValueError(f"--on-anomaly {words!r}: there is no such command")
        if not any("{path}" in word for word in self.words):
            self.words.append("{path}")
        self.pool = ThreadPoolExecutor(1)

    def __call__(self, row: "Watched") -> None:
        facts = {"{path}": row.image_path, "{score}": f"{row.pred_score:.6g}"}
        words = []
        for word in self.words:
            for name, value in facts.items():
                word = value if word == name else word.replace(name, value)
            words.append(word)
        self.pool.submit(self._run, words)

    def _run(self, words: list[str]) -> None:
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, timeout=LONGEST_CALL)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            warn(f"--on-anomaly failed: {error}")
            return
        if done.returncode:
            warn(f"--on-anomaly: {words[0]} ended with {done.returncode} for {words[-1]!r}")

    def close(self) -> None:
        self.pool.shutdown(wait=True)
