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
    """Signals and streams of the command line, once."""

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


def check_rate(false_alarms: float) -> None:
    if not 0 < false_alarms < 1:
        raise ValueError(f"--false-alarms must lie between 0 and 1, got {false_alarms}")


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
