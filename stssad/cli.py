"""The command line: words to objects, one call, and the result in words."""

import sys
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Finds anomalous pictures without any labels, and tunes itself to the kind of anomaly.",
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from .version import __version__

        typer.echo(f"stssad {__version__}")
        raise typer.Exit


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Fixes everything, the planted patch included.")] = 0,
    texture: Annotated[str, typer.Option(help="brick, grass or gravel.")] = "grass",
    jobs: Annotated[int, typer.Option(help="Starts that run at once.")] = 2,
) -> None:
    """Plant a dark patch of unknown size in texture pictures, and learn its size without labels."""
    from rich.console import Console

    from .demo import run_demo
    from .progress import FitProgress, in_words

    console = Console(highlight=False, soft_wrap=True)
    console.print(
        "240 normal crops of a texture, and 128 unlabeled ones, some with a dark patch.\n"
        "How many and how large, the program isn't told. It tunes from four starts:"
    )
    with FitProgress(console) as progress:
        result = run_demo(seed, texture, jobs, progress)
    model = result.model
    for c in model.candidates_:
        mark = "chosen" if c.start == model.chosen_ else "collapsed" if c.collapsed else ""
        console.print(
            f"  start {c.start + 1}: {in_words({'area': c.initial['area']})} -> "
            f"{in_words(c.learned)}; score variance {c.score_variance:.3g}  {mark}"
        )
    share = f"{100 * result.contamination:.0f} % of the pool"
    console.print(
        f"planted patch: area {100 * result.planted_area:.3g} %, aspect 1.00 ({share})\n"
        f"learned patch: {in_words(model.learned_)}\n"
        f"AUC on the pool: {result.auc:.3f}\n"
        f"time: {result.seconds:.0f} s"
    )


def main() -> None:
    """The console script: errors that a user can mend are one sentence, not a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"stssad: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
