"""The command line: words to objects, one call, and the result in words."""

import sys
from typing import Annotated

import typer

from . import bench, check, console, demo, export, fit, report, review, scale, score, studio, watch

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Finds anomalous images without any labels, and learns from the anomalies in a pool.",
    epilog="Three commands: fit --normal good/ --unlabeled pool/ --out runs/bolt; "
    "score runs/bolt new/ --out scores.csv; report runs/bolt.",
)
app.command("fit")(fit.command)
app.command("check")(check.command)
app.command("score")(score.command)
app.command("report")(report.command)
app.command("fit-many")(scale.fit_many)
app.command("studio")(studio.command)
app.command("review")(review.review)
app.command("refit")(review.refit)
app.command("watch")(watch.command)
app.command("export")(export.command)
app.command("demo")(demo.command)
app.add_typer(bench.app, name="bench")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from ..version import __version__

        typer.echo(f"stssad {__version__}")
        raise typer.Exit


def main() -> None:
    """The console script: errors that a user can mend are one sentence, not a traceback."""
    from ..parallel.processes import WorkerDiedError

    console.prepare_process()
    try:
        app()
    except (ValueError, TypeError, OSError, ImportError, WorkerDiedError) as error:
        typer.echo(f"stssad: {error}", err=True)
        sys.exit(2)
