"""`stssad demo`: defects are planted in texture images, and found without labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import command_line, make_console

if TYPE_CHECKING:
    from rich.console import Console


def command(
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's method: from scratch, dark patches only.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed, of what is planted too.")] = 0,
    texture: Annotated[
        str | None, typer.Option(help="brick, grass or gravel; gravel, or grass with --paper.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Parallel processes.")] = 2,
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs/demo"),
) -> None:
    """Plant defects in texture images, and find out which ones without labels."""
    show = show_paper if paper else show_pretrained
    show(make_console(), seed, texture or ("grass" if paper else "gravel"), jobs, out)


def show_pretrained(console: "Console", seed: int, texture: str, jobs: int, out: Path) -> None:
    from ..demo import hidden_kinds, run_kinds
    from ..report.presentation import evidence_in_words
    from ..words import in_words
    from .progress import FitProgress

    n = len(hidden_kinds(seed))
    console.print(
        f"{n} times 200 normal crops of a texture, and 100 unlabeled ones, some with a defect.\n"
        "Of which kind, how many and how large, the program isn't told. It tries all types:"
    )
    with FitProgress(console) as progress:
        found = list(run_kinds(out, command_line(), seed, texture, jobs, progress))
    for result in found:
        summary = result.run.summary()
        assert summary.contamination is not None
        console.print(
            f"\n{result.kind.name}\n"
            f"  planted: {in_words(result.kind.planted)} (20 % of the pool)\n"
            f"  learned: {in_words(summary.learned)}\n"
            f"  {evidence_in_words(summary)}\n"
            f"  {summary.contamination.in_words()}\n"
            f"  AUROC on the pool: {result.auroc:.3f}; {result.seconds:.0f} s; {result.run.report}"
        )


def show_paper(console: "Console", seed: int, texture: str, jobs: int, out: Path) -> None:
    from ..demo import run_paper
    from ..words import in_words
    from .progress import FitProgress

    console.print(
        "240 normal crops of a texture, and 128 unlabeled ones, some with a dark patch.\n"
        "How many and how large, the program isn't told. It tunes from four initial values:"
    )
    with FitProgress(console) as progress:
        result = run_paper(out / "paper", command_line(), seed, texture, jobs, progress)
    summary = result.run.summary()
    for c in summary.candidates:
        mark = "chosen" if c.number == summary.chosen else "collapsed" if c.collapsed else ""
        console.print(
            f"  restart {c.number + 1}: {in_words({'size': c.initial['size']})} -> "
            f"{in_words(c.learned)}; score variance {c.score_variance:.3g}  {mark}"
        )
    assert summary.contamination is not None
    console.print(
        f"planted patch: {in_words(result.kind.planted)} (50 % of the pool)\n"
        f"learned patch: {in_words(summary.learned)}\n"
        f"estimate of the share: {summary.contamination.in_words()}\n"
        f"AUROC on the pool: {result.auroc:.3f}\n"
        f"time: {result.seconds:.0f} s\n"
        f"report: {result.run.report}"
    )
