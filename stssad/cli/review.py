"""`stssad review` and `stssad refit`: what somebody has marked, and what a run learns from it."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from .console import make_console


def review(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
    marks: Annotated[
        Path | None,
        typer.Option(help="CSV with image_path and mark (good, defect, unsure) to take over."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="CSV to write all marks to that the run has.")
    ] = None,
    next: Annotated[
        int, typer.Option(min=0, help="Name so many images that are worth looking at next.")
    ] = 0,
) -> None:
    """Take over marks, write them out, and say how the run's labels agree with them."""
    from ..report.material import Material
    from ..review.marks import Marks, read_marks, write_marks
    from ..review.order import proposed
    from ..review.refitting import agreement, places
    from ..run import Run
    from ..storage import replacing

    opened = Run.open(run)
    kept = Marks(run)
    if marks is not None:
        given = read_marks(marks)
        places(opened, given)
        kept.take(given.values())
    found = kept.all()
    if out is not None:
        with replacing(out, "surrogateescape") as file:
            write_marks(found.values(), file)
    good, defects = places(opened, found)
    summary, console = opened.summary(), make_console()
    agrees = agreement(summary.pool_scores, summary.threshold, good, defects)
    n_unsure = len(found) - len(good) - len(defects)
    console.print(
        f"{len(found)} of {len(summary.pool_scores)} images are marked: {len(good)} good, "
        f"{len(defects)} defect, {n_unsure} unsure"
    )
    if found:
        console.print(agrees.in_words())
    rows = opened.predictions()
    marked = [i for i, row in enumerate(rows) if row.image_path in found]
    kinds = Material.load(run).kinds.tolist()
    order = proposed(summary.pool_scores, summary.threshold, kinds, marked)
    for i in order[:next]:
        typer.echo(rows[i].image_path)


def refit(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for the new run.")],
    marks: Annotated[
        Path | None,
        typer.Option(help="CSV with image_path and mark; else those that the run has."),
    ] = None,
) -> None:
    """Learn from marks: good ones join the normal images, defects teach. Encodes nothing again."""
    from ..review.marks import Marks, read_marks
    from ..review.refitting import refit_run
    from ..run import Run

    opened = Run.open(run)
    found = Marks(run).all() if marks is None else read_marks(marks)
    done = refit_run(opened, found, out, f"stssad {shlex.join(sys.argv[1:])}")
    console = make_console()
    console.print(f"learned from {done.n_good} good and {done.n_defects} defective images")
    console.print(f"before: {done.before.in_words()}")
    console.print(f"after:  {done.after.in_words()}")
    console.print(f"run: {out}")
