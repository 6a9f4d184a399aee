"""Progress of a benchmark: a line for each cell, and on a terminal a bar, with the time left."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..experiments.bench.cell import Cell, Line

TUNED_WEIGHT = 10  # a tuned cell takes about as long as ten others


def weight(cell: Cell) -> int:
    """For the time left: cells that train once for all tasks come first and are quick."""
    quick = cell.method.startswith(("AE", "D-SVDD", "Frozen", "PatchCore", "RS-", "RD-"))
    return 1 if quick else TUNED_WEIGHT


class BenchProgress:
    """Call it with the lines of each unit that is done, within `with`."""

    def __init__(self, console: Console, cells: Sequence[Cell]) -> None:
        self.console, self.n_cells, self.n_done = console, len(cells), 0
        self.work, self.done = sum(map(weight, cells)), 0
        self.began = time.monotonic()
        self.bar = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
        )
        self.task = self.bar.add_task("", total=self.n_cells, left="")

    def __enter__(self) -> "BenchProgress":
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def __call__(self, lines: list[Line]) -> None:
        for line in lines:
            self.n_done += 1
            self.done += weight(line.cell)
        if not self.done:
            return
        seconds = (time.monotonic() - self.began) / self.done * (self.work - self.done)
        left = f"about {seconds / 60:.0f} min left"
        self.bar.update(self.task, completed=self.n_done, left=left)
        for line in lines:
            c = line.cell
            self.console.print(
                f"{self.n_done}/{self.n_cells}  {c.testbed} {c.task}  {c.method}  seed {c.seed}  "
                f"AUROC {line.auc:.3f}  {line.seconds:.0f} s  ({left})"
            )
