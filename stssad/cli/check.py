"""`stssad check`: are the images fit for a fit?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import make_console

if TYPE_CHECKING:
    from ..images.inspection import Remark


def command(
    normal: Annotated[Path, typer.Option(help="Folder of normal images.")],
    unlabeled: Annotated[
        Path | None, typer.Option(help="Folder of unlabeled images, the pool.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the remarks as JSON.")] = False,
) -> None:
    """Look for copies, odd sizes, light and focus, and files that would be skipped."""
    from ..images.inspection import Folder, inspect
    from ..storage.files import json_text

    console = make_console(quiet=json)
    with console.status("reading images"):
        of_normal = Folder.read("normal", normal)
        pool = None if unlabeled is None else Folder.read("unlabeled", unlabeled)
    remarks = inspect(of_normal, pool)
    if json:
        typer.echo(json_text([remark.content() for remark in remarks]))
    else:
        n_pool = "" if pool is None else f" and {len(pool.paths)} unlabeled"
        console.print(f"{len(of_normal.paths)} normal{n_pool} images were read")
        print_remarks(remarks)
    if any(remark.severity == "error" for remark in remarks):
        raise typer.Exit(1)


def print_remarks(remarks: "Sequence[Remark]") -> None:
    """A table: how grave, and what."""
    from rich.table import Table

    console = make_console()
    if not remarks:
        console.print("nothing odd was found")
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for remark in remarks:
        table.add_row(remark.severity, str(remark))
    console.print(table)
