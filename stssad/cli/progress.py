"""Progress of a fit: a bar for each restart on a terminal, a line every few seconds elsewhere."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from ..augment.learned import format_learned
from ..tuning.progress import Event, RestartEvent

T = TypeVar("T")


def format_restart(event: Event) -> str:
    """The losses of a restart, and what it has learned."""
    if not isinstance(event, RestartEvent):
        return ""
    losses = "  ".join(f"{name} {value:.3f}" for name, value in event.losses.items())
    return f"{losses}  {format_learned(event.learned)}"


class FitProgress:
    """Call it with each event of a fit, within `with`."""

    def __init__(self, console: Console, seconds_between_lines: float = 10) -> None:
        self.console = console
        self.pause = seconds_between_lines
        self.last_line = time.monotonic()
        self.tasks: dict[str, TaskID] = {}
        self.bars = Progress(
            TextColumn("{task.fields[label]}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=console,
        )

    def __enter__(self) -> "FitProgress":
        if self.console.is_terminal:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bars.stop()

    def __call__(self, event: Event) -> None:
        if self.console.is_terminal:
            self._move_bar(event)
        elif time.monotonic() - self.last_line >= self.pause:
            self.last_line = time.monotonic()
            self.console.print(
                f"{event.label}  {event.n_done}/{event.n_most}  {format_restart(event)}".rstrip()
            )

    def _move_bar(self, event: Event) -> None:
        if event.label not in self.tasks:
            self.tasks[event.label] = self.bars.add_task("", label=event.label, status="")
        self.bars.update(
            self.tasks[event.label],
            completed=event.n_done,
            total=event.n_most,
            status=format_restart(event),
        )


class CountProgress:
    """Counts what passes through; a bar on a terminal, a line every few seconds elsewhere."""

    def __init__(
        self, console: Console, total: int | None, seconds_between_lines: float = 10
    ) -> None:
        self.console, self.total, self.pause = console, total, seconds_between_lines
        self.bar = Progress(
            TextColumn("scoring"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )

    def __enter__(self) -> "CountProgress":
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def count(self, items: Iterable[T]) -> Iterator[T]:
        task = self.bar.add_task("", total=self.total)
        last = time.monotonic()
        for n, item in enumerate(items, start=1):
            yield item
            if self.console.is_terminal:
                self.bar.update(task, completed=n)
            elif time.monotonic() - last >= self.pause:
                last = time.monotonic()
                self.console.print(f"{n} of {self.total or '?'} images scored")
