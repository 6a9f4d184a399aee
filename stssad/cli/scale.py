"""Commands that run on a Ray cluster: `stssad score --ray` and `stssad fit-many`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import make_console, warn

if TYPE_CHECKING:
    from rich.console import Console

    from ..scale.parts import Totals

SHOWN = 20  # unreadable images that are named on the terminal; the parts name all


def score_parts(
    run: Path,
    images: str,
    out: Path | None,
    form: str | None,
    part_size: int,
    false_alarms: float | None,
    engine: str,
    address: str,
    quiet: bool,
) -> None:
    """Write predictions in parts; started again, it resumes."""
    from ..runs.run import Run
    from ..scale.parts import FORMATS, Totals
    from ..scale.scoring import ScoreRequest, score_on_ray

    if out is None:
        raise ValueError("--ray needs --out, a folder for the parts")
    if form is not None and form not in FORMATS:
        raise ValueError(f"--format {form} doesn't go with --ray; use {' or '.join(FORMATS)}")
    Run.open(run)
    request = ScoreRequest(run, images, out, form or FORMATS[0], part_size, false_alarms, engine)
    console = make_console(quiet)
    for done in score_on_ray(request, address):
        if isinstance(done, Totals):
            print_totals(done, out, console)
        else:
            console.print(f"{done} images scored")


def print_totals(totals: "Totals", out: Path, console: "Console") -> None:
    n_unreadable = len(totals.unreadable)
    for error in totals.unreadable[:SHOWN]:
        warn(error)
    if n_unreadable:
        warn(f"{n_unreadable} file(s) could not be read; see the column error of the parts")
    console.print(f"{totals.n - n_unreadable} images scored, {totals.flagged} flagged: {out}")


def fit_many(
    lines: Annotated[Path, typer.Argument(help="TOML file with a table for each product line.")],
    ray: Annotated[
        str, typer.Option(help="Address of a Ray cluster, or `local` for this machine.")
    ] = "local",
) -> None:
    """Fit many product lines in parallel, each as `stssad fit` does; start again to resume."""
    from ..scale.fit_many import fit_many, read_lines

    product_lines = read_lines(lines)
    console, failed = make_console(), 0
    console.print(f"{len(product_lines)} lines")
    for n, outcome in enumerate(fit_many(product_lines, ray), start=1):
        failed += not outcome.ok
        message = f"{n}/{len(product_lines)}  {outcome.name}: {outcome.message}"
        if outcome.ok:
            console.print(message)
        else:
            warn(message)
    if failed:
        raise ValueError(
            f"{failed} of {len(product_lines)} lines could not be fitted; see the warnings, then "
            "start again"
        )
