"""Progress of a fit: a bar for each start on a terminal, a line now and then elsewhere."""

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

from .starts import Event
from .words import in_words

T = TypeVar("T")


def losses_in_words(event: Event) -> str:
    if event.record is None:
        return f"warm start, L_trn {event.train_loss:.3f}"
    r = event.record
    losses = f"L_trn {r.train_loss:.3f}  L_val {r.val_loss:.3f}"
    if r.theta_seconds == 0:  # nothing but the augmentation is learned
        losses = f"{event.family}  loss {r.val_loss:.3f}"
    return f"{losses}  {in_words(r.learned)}"


class FitProgress:
    """Call it with each event of a fit, within `with`."""

    def __init__(self, console: Console, seconds_between_lines: float = 10) -> None:
        self.console = console
        self.pause = seconds_between_lines
        self.last_line = time.monotonic()
        self.tasks: dict[int, TaskID] = {}
        self.bars = Progress(
            TextColumn("start {task.fields[number]}"),
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
            number, words = event.start + 1, losses_in_words(event)
            self.console.print(f"start {number}  {event.n_done}/{event.n_most}  {words}")

    def _move_bar(self, event: Event) -> None:
        if event.start not in self.tasks:
            self.tasks[event.start] = self.bars.add_task("", number=event.start + 1, words="")
        self.bars.update(
            self.tasks[event.start],
            completed=event.n_done,
            total=event.n_most,
            words=losses_in_words(event),
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
                self.console.print(f"{n} of {self.total or '?'} pictures scored")
