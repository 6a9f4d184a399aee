"""What runs on a Ray cluster: `stssad score --ray` and `stssad fit-many`."""

from pathlib import Path
from typing import Annotated

import typer

from .console import check_rate, make_console, warn

SHOWN = 20  # unreadable images that are named on the terminal; the parts have all


def score_parts(
    run: Path, images: str, out: Path | None, form: str | None, part_size: int,
    false_alarms: float | None, engine: str, address: str, quiet: bool,
) -> None:  # fmt: skip
    """Predictions in parts; started again it goes on where it was."""
    from ..run import Run
    from ..scale.parts import FORMATS, Totals
    from ..scale.scoring import Request, score_on_ray

    if out is None:
        raise ValueError("--ray needs --out, a folder for the parts")
    if form is not None and form not in FORMATS:
        raise ValueError(f"--format {form} doesn't go with --ray; use {' or '.join(FORMATS)}")
    if false_alarms is not None:
        check_rate(false_alarms)
    Run.open(run)
    request = Request(run, images, out, form or FORMATS[0], part_size, false_alarms, engine)
    console = make_console(quiet)
    for done in score_on_ray(request, address):
        if not isinstance(done, Totals):
            console.print(f"{done} images scored")
            continue
        for words in done.unreadable[:SHOWN]:
            warn(words)
        if done.unreadable:
            warn(f"{len(done.unreadable)} file(s) could not be read; column error of the parts")
        console.print(
            f"{done.n - len(done.unreadable)} images scored, {done.flagged} flagged: {out}"
        )


def fit_many(
    lines: Annotated[Path, typer.Argument(help="TOML file, a table for each product line.")],
    ray: Annotated[
        str, typer.Option(help="Address of a Ray cluster, or `local` for this machine.")
    ] = "local",
) -> None:
    """Fit many product lines side by side, each as `stssad fit` does; start again to go on."""
    from ..scale.fit_many import fit_many, lines_in

    asked = lines_in(lines)
    console, failed = make_console(), 0
    console.print(f"{len(asked)} lines")
    for n, outcome in enumerate(fit_many(asked, ray), start=1):
        failed += not outcome.ok
        words = f"{n}/{len(asked)}  {outcome.name}: {outcome.told}"
        if outcome.ok:
            console.print(words)
        else:
            warn(words)
    if failed:
        raise ValueError(f"{failed} of {len(asked)} lines could not be fitted; mend, start again")
