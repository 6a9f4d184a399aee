"""`stssad demo`: defects are planted in texture images, and found without labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import format_command, make_console

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
    """Plant defects in texture images, and identify them without labels."""
    show = show_paper if paper else show_pretrained
    show(make_console(), seed, texture or ("grass" if paper else "gravel"), jobs, out)


def show_pretrained(console: "Console", seed: int, texture: str, jobs: int, out: Path) -> None:
    from ..augment.learned import format_learned
    from ..experiments.demo import hidden_kinds, run_kinds
    from ..report.presentation import format_evidence
    from .progress import FitProgress

    n = len(hidden_kinds(seed))
    console.print(
        f"{n} times 200 normal crops of a texture, and 100 unlabeled ones, some with a defect.\n"
        "Their kind, number and size are unknown to the program. It tries all types:"
    )
    with FitProgress(console) as progress:
        results = list(run_kinds(out, format_command(), seed, texture, jobs, progress))
    for result in results:
        summary = result.run.summary()
        assert summary.contamination is not None
        console.print(
            f"\n{result.kind.name}\n"
            f"  planted: {format_learned(result.kind.planted)} (20 % of the pool)\n"
            f"  learned: {format_learned(summary.learned)}\n"
            f"  {format_evidence(summary)}\n"
            f"  {summary.contamination.summarise()}\n"
            f"  AUROC on the pool: {result.auroc:.3f}; {result.seconds:.0f} s; {result.run.report}"
        )


def show_paper(console: "Console", seed: int, texture: str, jobs: int, out: Path) -> None:
    from ..augment.learned import format_learned
    from ..experiments.demo import run_paper
    from .progress import FitProgress

    console.print(
        "240 normal crops of a texture, and 128 unlabeled ones, some with a dark patch.\n"
        "Their number and size are unknown to the program. It tunes from four initial values:"
    )
    with FitProgress(console) as progress:
        result = run_paper(out / "paper", format_command(), seed, texture, jobs, progress)
    summary = result.run.summary()
    for c in summary.candidates:
        status = "chosen" if c.number == summary.chosen else "collapsed" if c.collapsed else ""
        console.print(
            f"  restart {c.number + 1}: {format_learned({'size': c.initial['size']})} -> "
            f"{format_learned(c.learned)}; score variance {c.score_variance:.3g}  {status}"
        )
    assert summary.contamination is not None
    console.print(
        f"planted patch: {format_learned(result.kind.planted)} (50 % of the pool)\n"
        f"learned patch: {format_learned(summary.learned)}\n"
        f"estimate of the share: {summary.contamination.summarise()}\n"
        f"AUROC on the pool: {result.auroc:.3f}\n"
        f"time: {result.seconds:.0f} s\n"
        f"report: {result.run.report}"
    )
