"""Progress of a benchmark: a line for each cell, and on a terminal a bar, with the time left."""

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .cell import Line


class BenchProgress:
    """Call it with the lines of each unit that is done, within `with`."""

    def __init__(self, console: Console, n_cells: int) -> None:
        self.console, self.n_cells, self.n_done = console, n_cells, 0
        self.began = time.monotonic()
        self.bar = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[words]}"),
            console=console,
        )
        self.task = self.bar.add_task("", total=n_cells, words="")

    def __enter__(self) -> "BenchProgress":
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def __call__(self, lines: list[Line]) -> None:
        self.n_done += len(lines)
        spent = time.monotonic() - self.began
        left = spent / self.n_done * (self.n_cells - self.n_done)
        words = f"about {left / 60:.0f} min left"
        self.bar.update(self.task, completed=self.n_done, words=words)
        for line in lines:
            c = line.cell
            self.console.print(
                f"{self.n_done}/{self.n_cells}  {c.testbed} {c.task}  {c.method}  seed {c.seed}  "
                f"AUC {line.auc:.3f}  {line.seconds:.0f} s  ({words})"
            )
