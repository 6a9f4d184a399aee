"""`stssad report`: the page of a run, built again."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
) -> None:
    """Build the page of a run again."""
    from ..report.page import write_report
    from ..runs.run import Run

    typer.echo(f"report: {write_report(Run.open(run))}")
