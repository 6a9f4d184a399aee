"""Progress of a fit: a bar for each restart on a terminal, a line now and then elsewhere."""

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

from ..tuning.restarts import Event
from ..words import in_words

T = TypeVar("T")


def in_a_line(event: Event) -> str:
    losses = "  ".join(f"{name} {value:.3f}" for name, value in event.losses.items())
    return f"{event.augmentation}  {losses}  {in_words(event.learned)}"


def label_of(event: Event) -> str:
    return event.stage or f"restart {event.number + 1}"


class FitProgress:
    """Call it with each event of a fit, within `with`."""

    def __init__(self, console: Console, seconds_between_lines: float = 10) -> None:
        self.console = console
        self.pause = seconds_between_lines
        self.last_line = time.monotonic()
        self.tasks: dict[int, TaskID] = {}
        self.bars = Progress(
            TextColumn("{task.fields[label]}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[words]}"),
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
                f"{label_of(event)}  {event.n_done}/{event.n_most}  {in_a_line(event)}".rstrip()
            )

    def _move_bar(self, event: Event) -> None:
        if event.number not in self.tasks:
            self.tasks[event.number] = self.bars.add_task("", label=label_of(event), words="")
        self.bars.update(
            self.tasks[event.number],
            completed=event.n_done,
            total=event.n_most,
            words=in_a_line(event),
        )


class CountProgress:
    """Counts what passes through; a bar on a terminal, a line now and then elsewhere."""

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

    def counting(self, items: Iterable[T]) -> Iterator[T]:
        task = self.bar.add_task("", total=self.total)
        last = time.monotonic()
        for n, item in enumerate(items, start=1):
            yield item
            if self.console.is_terminal:
                self.bar.update(task, completed=n)
            elif time.monotonic() - last >= self.pause:
                last = time.monotonic()
                self.console.print(f"{n} of {self.total or '?'} images scored")
