"""`stssad score`: a run and images to scores, labels and heatmaps."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .console import Engine, check_device, check_rate, closed, make_console, say_unreadable, warn
from .scale import score_parts

if TYPE_CHECKING:
    from rich.console import Console

    from ..heatmaps import HeatmapWriter
    from ..images import UnreadableError
    from ..model import STSSAD
    from ..predictions import Counts


def command(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
    images: Annotated[
        str,
        typer.Argument(
            help="An image, a folder, a list file (a path a line), or -; with --ray also a Parquet "
            "file of paths, or an address such as s3://bucket/folder."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write, else standard output; with --ray a folder."),
    ] = None,
    format: Annotated[
        Literal["csv", "json", "parquet"] | None,
        typer.Option(help="Of the output: csv or json; with --ray parquet or csv."),
    ] = None,
    heatmaps: Annotated[
        Path | None, typer.Option(help="Folder for a PNG of each image with its anomaly map.")
    ] = None,
    copy_flagged: Annotated[
        Path | None, typer.Option(help="Folder to copy flagged images to; none is overwritten.")
    ] = None,
    false_alarms: Annotated[
        float | None, typer.Option(help="False alarm rate, instead of the one of the fit.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    engine: Engine = "auto",
    ray: Annotated[
        str | None, typer.Option(help="Score on the Ray cluster at this address, or `local`.")
    ] = None,
    part_size: Annotated[int, typer.Option(min=1, help="Images in each part, with --ray.")] = 500,
    drift: Annotated[
        bool, typer.Option("--drift", help="Say whether the line has changed since the fit.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a file that can't be read.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Score images with a fitted model: path, score, label, p-value."""
    if ray is not None:
        if heatmaps is not None or copy_flagged is not None or drift or strict or device != "cpu":
            raise ValueError(
                "--heatmaps, --copy-flagged, --drift, --strict and --device don't go with --ray"
            )
        score_parts(run, images, out, format, part_size, false_alarms, engine, ray, quiet)
        return
    if format == "parquet":
        raise ValueError("--format parquet goes with --ray; use csv or json")
    check_device(device)
    check_out(out)
    model = opened(run, device, false_alarms)
    extras = Extras(heatmaps, copy_flagged, drift)
    score_here(model, images, out, format or "csv", engine, strict, make_console(quiet), extras)


@dataclass(frozen=True)
class Extras:
    """What is wanted beside the scores."""

    heatmaps: Path | None
    copy_flagged: Path | None
    drift: bool


def score_here(
    model: "STSSAD", images: str, out: Path | None, form: str, engine: str, strict: bool,
    console: "Console", extras: Extras,
) -> None:  # fmt: skip
    """On this machine, into a file or to standard output."""
    from ..copies import FlaggedCopies
    from ..drift import DriftMonitor
    from ..engine import engine_for
    from ..predictions import listed_paths, score_files, write_predictions
    from ..storage import replacing
    from .progress import CountProgress

    unreadable = 0

    def on_unreadable(error: "UnreadableError") -> None:
        nonlocal unreadable
        unreadable += 1
        warn(error)

    paths, source = listed_paths(images), Path(images)
    total = len(paths) if isinstance(paths, list) else None
    heatmaps, copies = extras.heatmaps, extras.copy_flagged
    writer = None if heatmaps is None else heatmap_writer(heatmaps, source, model)
    copier = None if copies is None else FlaggedCopies(copies, source)
    monitor = DriftMonitor.of(model) if extras.drift else None
    results = score_files(
        model, paths, None if strict else on_unreadable, writer,
        engine_for(model, engine, total), monitor.observe if monitor is not None else None,
    )  # fmt: skip
    if copier is not None:
        results = copier.copying(results)
    if out is None:
        counts = write_predictions(results, sys.stdout, form)
    else:
        with (
            replacing(out, "surrogateescape") as file,  # names that aren't UTF-8, without loss
            CountProgress(console, total) as progress,
        ):
            counts = write_predictions(progress.counting(results), file, form)
    say_unreadable(unreadable)
    if counts.n == 0:
        raise ValueError(f"no image of {images!r} could be read; look at the warnings")
    if out is not None:
        console.print(said(model, counts, out, heatmaps))
    if monitor is not None:
        typer.echo(monitor.told(), err=out is None)  # standard output holds the scores then


def opened(run: Path, device: str, false_alarms: float | None) -> "STSSAD":
    """The run's model, with another false alarm rate if one is wanted."""
    from ..run import Run

    if false_alarms is not None:
        check_rate(false_alarms)
    model = Run.open(run).model(device=device)
    return model if false_alarms is None else model.set_threshold(false_alarms)


def heatmap_writer(folder: Path, images: Path, model: "STSSAD") -> "HeatmapWriter":
    from ..heatmaps import HeatmapWriter

    if model.map_scale_ is None:
        raise ValueError(
            "this model has no anomaly maps: they come from the pretrained method, with an encoder "
            "that has feature maps; fit again without --method paper"
        )
    return HeatmapWriter(folder, images, model.map_scale_, model.reading_)


def said(model: "STSSAD", counts: "Counts", out: Path, heatmaps: Path | None) -> str:
    rate = f"{100 * model.false_alarms_:.3g} %"
    words = f"{counts.n} images scored, {counts.flagged} flagged (false alarm rate {rate}): {out}"
    return words if heatmaps is None else f"{words}\nheatmaps: {heatmaps}"


def check_out(out: Path | None) -> None:
    """Before anything is scored."""
    if out is None:
        if "stdout" in closed:
            raise ValueError("standard output is closed; name a file with --out")
        return
    if out.is_dir():
        raise ValueError(f"--out {str(out)!r} is a folder; give a file")
    if not Path(os.path.realpath(out)).parent.is_dir():
        raise FileNotFoundError(f"--out {str(out)!r} is in no folder that exists; make it first")
