"""What several commands print and check."""

import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from ..images.decode import UnreadableError
    from ..scoring.decision import Decision, Sensitivity


Engine = Annotated[
    Literal["auto", "torch", "onnx"],
    typer.Option(help="auto: ONNX Runtime for many images on a CPU."),
]
TERMINATED = 128 + signal.SIGTERM
closed: list[str] = []  # streams that the caller has closed


class Terminated(SystemExit):
    """SIGTERM: everything is cleaned up as on Ctrl-C, and the exit code is the shell's 143."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


def prepare_process() -> None:
    """Signals, streams and threads of the command line, once, before torch is imported."""
    # Threads that wait for one another sleep: where other processes use the same cores, waiting
    # busily takes twice as long, and alone it saves a twentieth.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    def terminate(number: int, frame: object) -> None:
        raise Terminated

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminate)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            closed.append(name)
            setattr(sys, name, open(os.devnull, "w"))
        elif hasattr(stream, "reconfigure"):
            # Names of files that aren't UTF-8: as they are in output, readable in messages.
            stream.reconfigure(errors="surrogateescape" if name == "stdout" else "backslashreplace")


def make_console(quiet: bool = False) -> "Console":
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, quiet=quiet, markup=False)


def check_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device).item()  # a device that holds no numbers, such as meta, fails
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"--device {device} can't be used here: {reason}; use cpu") from None


FalseAlarms = Annotated[
    float | None,
    typer.Option(help="False alarm rate: share of normal images that are flagged."),
]
FalseDiscoveries = Annotated[
    float | None,
    typer.Option(help="False discovery rate: share of the flagged images that may be normal."),
]
HowSensitive = Annotated[
    Literal["low", "usual", "high"] | None,
    typer.Option(help="low, usual or high: sets both rates at once (0.5, 1 or 5 % alarms)."),
]


def choose_decision(
    sensitivity: "Sensitivity | None",
    false_alarms: float | None,
    false_discoveries: float | None = None,
) -> "Decision | None":
    """What flags ask for; None: nothing."""
    from ..scoring.decision import SENSITIVITIES, Decision

    rates = {"--false-alarms": false_alarms, "--false-discoveries": false_discoveries}
    given = [name for name, rate in rates.items() if rate is not None]
    if sensitivity is not None and given:
        raise ValueError(f"--sensitivity sets the rates, so leave out {given[0]}, or give it alone")
    for name, rate in rates.items():
        if rate is not None and not 0 < rate < 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {rate}")
    if sensitivity is not None:
        return SENSITIVITIES[sensitivity]
    return Decision(false_alarms, false_discoveries) if given else None


def format_command() -> str:
    return shlex.join(["stssad", *sys.argv[1:]])


def warn(error: "UnreadableError | str") -> None:
    typer.echo(f"stssad: warning: {error}", err=True)


def warn_unreadable(n: int) -> None:
    if n:
        warn(f"{n} file(s) could not be read and were left out")


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """After Ctrl-C or a worker's death the run can be resumed: print the command that does."""
    from ..parallel.processes import WorkerDiedError

    again = format_command() if "--resume" in sys.argv else f"{format_command()} --resume"
    try:
        yield
    except (KeyboardInterrupt, Terminated) as stop:
        typer.echo(f"\nstopped; {out} holds the work so far. To resume:\n  {again}", err=True)
        raise typer.Exit(TERMINATED if isinstance(stop, Terminated) else 130) from None
    except WorkerDiedError as error:
        typer.echo(f"stssad: {error}; {out} holds the work so far. To resume:\n  {again}", err=True)
        raise typer.Exit(2) from None
