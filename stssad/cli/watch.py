"""`stssad watch`: a run and a folder to a CSV that grows as images arrive."""

import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import (
    Engine,
    FalseAlarms,
    HowSensitive,
    check_device,
    choose_decision,
    make_console,
    warn,
)
from .score import load_model

if TYPE_CHECKING:
    from ..deploy.watch import WatchedImage, Watcher

LONGEST_CALL = 60  # seconds that a command of the user's may take


def command(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
    folder: Annotated[Path, typer.Argument(help="Folder in which images arrive.")],
    out: Annotated[
        Path | None,
        typer.Option(help="CSV to add scores to; watch.csv in the run by default."),
    ] = None,
    on_anomaly: Annotated[
        str | None,
        typer.Option(
            help="Command to run for each flagged image; {path} and {score} are replaced. "
            "Without {path}, the path is appended."
        ),
    ] = None,
    sensitivity: HowSensitive = None,
    false_alarms: FalseAlarms = None,
    drift: Annotated[
        bool,
        typer.Option("--drift/--no-drift", help="Warn when images drift from those of the fit."),
    ] = True,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    engine: Engine = "auto",
) -> None:
    """Score images as they arrive in a folder; stop with Ctrl-C, start again to continue."""
    from ..deploy.watch import Log, Watcher
    from ..methods.engine import engine_for
    from ..runs.folder import RunFolder

    check_device(device)
    if not folder.is_dir():
        raise NotADirectoryError(f"no such folder: {str(folder)!r}; give one to watch")
    hook = None if on_anomaly is None else Hook(on_anomaly)
    model = load_model(run, device, choose_decision(sensitivity, false_alarms))
    log = Log(out or RunFolder(run).watched)
    watcher = Watcher(model, engine_for(model.model_, engine, None), log, drift)
    if drift and watcher.monitor is None:
        warn("drift can't be detected: the run has scores of too few normal images")
    try:
        watch(folder, watcher, hook)
    finally:
        log.close()
        if hook is not None:
            hook.close()


def watch(folder: Path, watcher: "Watcher", hook: "Hook | None") -> None:
    """Until Ctrl-C."""
    from ..deploy.watch import score_arrivals

    console, log = make_console(), watcher.log
    before = f", {len(log.rows)} images were scored before" if log.rows else ""
    console.print(f"watching {folder}{before}; scores are added to {log.path} (Ctrl-C stops)")
    alarmed = warn_of_drift(watcher)
    try:
        for rows in score_arrivals(folder, watcher):
            for row in rows:
                report(row, hook)
            alarmed = alarmed or warn_of_drift(watcher)
    except KeyboardInterrupt:
        console.print(f"stopped; {len(watcher.done)} images are in {log.path}")


def warn_of_drift(watcher: "Watcher") -> bool:
    """Whether there is any."""
    if watcher.drift is not None:
        warn(str(watcher.drift))
    return watcher.drift is not None


def report(row: "WatchedImage", hook: "Hook | None") -> None:
    """Print a flagged image, or one that can't be read."""
    if row.error:
        warn(row.error)
    elif row.pred_label:
        typer.echo(f"anomaly: {row.image_path} (score {row.pred_score:.2f}, p {row.p_value:.3g})")
        if hook is not None:
            hook(row)


class Hook:
    """A user's command that is run for each anomaly, one after another, while scoring continues.

    No shell reads it: a file's name can't be a command.
    """

    def __init__(self, command: str) -> None:
        try:
            self.words = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"--on-anomaly {command!r} is no command: {error}") from None
        if not self.words or shutil.which(self.words[0]) is None:
            raise ValueError(f"--on-anomaly {command!r}: there is no such command")
        if not any("{path}" in word for word in self.words):
            self.words.append("{path}")
        self.pool = ThreadPoolExecutor(1)

    def __call__(self, row: "WatchedImage") -> None:
        values = {"{path}": row.image_path, "{score}": f"{row.pred_score:.6g}"}
        words = []
        for word in self.words:
            for name, value in values.items():
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
            warn(f"--on-anomaly: {words[0]} exited with {done.returncode} for {words[-1]!r}")

    def close(self) -> None:
        self.pool.shutdown(wait=True)
