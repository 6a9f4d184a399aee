"""`stssad review` and `stssad refit`: people's labels of a run's images, and a fit with them."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import make_console

if TYPE_CHECKING:
    from ..review.labels import Label
    from ..runs.run import Run


def review(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
    labels: Annotated[
        Path | None,
        typer.Option(help="CSV to import, with image_path and label (good, defect, unsure)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="CSV to which all labels of the run are exported.")
    ] = None,
    next: Annotated[
        int, typer.Option(min=0, help="List this many images that should be labeled next.")
    ] = 0,
) -> None:
    """Import and export labels, and compare them with the images that the run flagged."""
    from ..review.agreement import find_labeled
    from ..review.labels import Labels, read_labels, write_labels
    from ..runs.run import Run
    from ..storage.files import replacing

    opened = Run.open(run)
    stored = Labels(run)
    if labels is not None:
        imported = read_labels(labels)
        find_labeled(opened, imported)  # refuses names that aren't in the pool
        stored.add_all(imported.values())
    all_labels = stored.all()
    if out is not None:
        with replacing(out, "surrogateescape") as file:
            write_labels(all_labels.values(), file)
    print_agreement(opened, all_labels)
    if next:
        print_next(opened, all_labels, next)


def print_agreement(run: "Run", labels: Mapping[str, "Label"]) -> None:
    from ..review.agreement import find_labeled, measure_agreement

    good, defects = find_labeled(run, labels)
    summary, console = run.summary(), make_console()
    n_unsure = len(labels) - len(good) - len(defects)
    console.print(
        f"{len(labels)} of {len(summary.pool_scores)} images are labeled: {len(good)} good, "
        f"{len(defects)} defect, {n_unsure} unsure"
    )
    if labels:
        agreement = measure_agreement(summary.pool_scores, summary.pool_threshold, good, defects)
        console.print(agreement.summarise())


def print_next(run: "Run", labels: Mapping[str, "Label"], n: int) -> None:
    from ..report.material import Material
    from ..review.order import propose_order

    rows, summary = run.predictions(), run.summary()
    labeled = [i for i, row in enumerate(rows) if row.image_path in labels]
    groups = Material.load(run.folder).groups.tolist()
    order = propose_order(summary.pool_scores, summary.pool_threshold, groups, labeled)
    for i in order[:n]:
        typer.echo(rows[i].image_path)


def refit(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for the new run.")],
    labels: Annotated[
        Path | None,
        typer.Option(help="CSV with image_path and label; by default, the labels of the run."),
    ] = None,
) -> None:
    """Fit again with people's labels: good images join the normal ones, and the score learns from
    defects. No image is encoded again."""
    from ..review.labels import Labels, read_labels
    from ..runs.refit import refit_run
    from ..runs.run import Run

    opened = Run.open(run)
    used = Labels(run).all() if labels is None else read_labels(labels)
    comparison = refit_run(opened, used, out, f"stssad {shlex.join(sys.argv[1:])}")
    console = make_console()
    console.print(comparison.summarise())
    console.print(f"before: {comparison.before.summarise()}")
    console.print(f"after:  {comparison.after.summarise()}")
    console.print(f"run: {out}")
