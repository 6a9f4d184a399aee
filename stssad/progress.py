"""Progress of a fit: a bar for each start on a terminal, a line now and then elsewhere."""

import time
from types import TracebackType

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


def in_words(learned: dict[str, float]) -> str:
    """{"area": 0.04, "aspect": 1.0} as "area 4.00 %, aspect 1.00"."""
    words = []
    for name, value in learned.items():
        if name == "area":
            words.append(f"area {100 * value:.3g} %")
        elif name.endswith("_deg"):
            words.append(f"{name.removesuffix('_deg')} {value:.0f}°")
        else:
            words.append(f"{name} {value:.2f}")
    return ", ".join(words)


def losses_in_words(event: Event) -> str:
    if event.record is None:
        return f"warm start, L_trn {event.train_loss:.3f}"
    r = event.record
    return f"L_trn {r.train_loss:.3f}  L_val {r.val_loss:.3f}  {in_words(r.learned)}"


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
