"""`stssad score`: a run and images to scores, labels and heatmaps."""

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .console import Engine, check_device, check_rate, closed, make_console, warn, warn_unreadable
from .scale import score_parts

if TYPE_CHECKING:
    from rich.console import Console

    from ..deploy.copies import FlaggedCopies
    from ..deploy.drift import DriftMonitor
    from ..deploy.heatmaps import HeatmapWriter
    from ..images.decode import UnreadableError
    from ..model import STSSAD
    from ..runs.predictions import Counts, Prediction, ScoredFile


def command(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
    images: Annotated[
        str,
        typer.Argument(
            help="An image, a folder, a list file (one path per line), or -; with --ray also a "
            "Parquet file of paths, or an address such as s3://bucket/folder."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; standard output by default. With --ray, a folder."),
    ] = None,
    format: Annotated[
        Literal["csv", "json", "parquet"] | None,
        typer.Option(help="Output format: csv or json; with --ray, parquet or csv."),
    ] = None,
    heatmaps: Annotated[
        Path | None, typer.Option(help="Folder for a PNG of each image with its anomaly map.")
    ] = None,
    copy_flagged: Annotated[
        Path | None,
        typer.Option(help="Folder to copy flagged images to; no file is overwritten."),
    ] = None,
    false_alarms: Annotated[
        float | None, typer.Option(help="False alarm rate, instead of that of the fit.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    engine: Engine = "auto",
    ray: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster, or `local` for this machine."),
    ] = None,
    part_size: Annotated[int, typer.Option(min=1, help="Images per part, with --ray.")] = 500,
    drift: Annotated[
        bool, typer.Option("--drift", help="Test whether images have drifted since the fit.")
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
    model = load_model(run, device, false_alarms)
    extras = Extras(heatmaps, copy_flagged, drift)
    score_here(model, images, out, format or "csv", engine, strict, make_console(quiet), extras)


@dataclass(frozen=True)
class Extras:
    """What is wanted beside the scores."""

    heatmaps: Path | None
    copy_flagged: Path | None
    drift: bool


@dataclass(frozen=True)
class Outputs:
    """What is made of each scored image beside its prediction."""

    heatmaps: "HeatmapWriter | None"
    copies: "FlaggedCopies | None"
    monitor: "DriftMonitor | None"

    def process(self, scored: "Iterable[ScoredFile]") -> "Iterator[Prediction]":
        """Predictions, once heatmaps and copies are written and the drift monitor has seen them."""
        for image in scored:
            prediction = image.prediction
            if self.heatmaps is not None and image.map is not None:
                self.heatmaps(Path(prediction.image_path), image.map)
            if self.monitor is not None:
                self.monitor.observe(prediction, image.conditions)
            if self.copies is not None:
                self.copies.copy(prediction)
            yield prediction


def make_outputs(model: "STSSAD", images: Path, extras: Extras) -> Outputs:
    from ..deploy.copies import FlaggedCopies
    from ..deploy.drift import DriftMonitor

    folder, copies = extras.heatmaps, extras.copy_flagged
    return Outputs(
        None if folder is None else make_heatmap_writer(folder, images, model),
        None if copies is None else FlaggedCopies(copies, images),
        DriftMonitor.for_model(model) if extras.drift else None,
    )


def make_heatmap_writer(folder: Path, images: Path, model: "STSSAD") -> "HeatmapWriter":
    from ..deploy.heatmaps import HeatmapWriter

    if model.map_scale_ is None:
        raise ValueError(
            "this model has no anomaly maps: they come from the pretrained method, with an encoder "
            "that has feature maps; fit again without --method paper"
        )
    return HeatmapWriter(folder, images, model.map_scale_, model.reading_)


def score_here(
    model: "STSSAD",
    images: str,
    out: Path | None,
    form: str,
    engine: str,
    strict: bool,
    console: "Console",
    extras: Extras,
) -> None:
    """On this machine, into a file or to standard output."""
    from ..methods.engine import engine_for
    from ..runs.predictions import list_paths, score_files, skip_unreadable

    n_unreadable = 0

    def on_unreadable(error: "UnreadableError") -> None:
        nonlocal n_unreadable
        n_unreadable += 1
        warn(error)

    paths = list_paths(images)
    n_paths = len(paths) if isinstance(paths, list) else None
    outputs = make_outputs(model, Path(images), extras)
    scored = score_files(model, paths, engine_for(model.model_, engine, n_paths))
    readable = skip_unreadable(scored, None if strict else on_unreadable)
    counts = write(outputs.process(readable), out, form, console, n_paths)
    warn_unreadable(n_unreadable)
    if counts.n == 0:
        raise ValueError(f"no image of {images!r} could be read; look at the warnings")
    if out is not None:
        console.print(format_result(model, counts, out, extras.heatmaps))
    if outputs.monitor is not None:
        # Standard output holds the scores where they have no file.
        typer.echo(outputs.monitor.summarise(), err=out is None)


def write(
    predictions: "Iterable[Prediction]",
    out: Path | None,
    form: str,
    console: "Console",
    n_paths: int | None,
) -> "Counts":
    from ..runs.predictions import write_predictions
    from ..storage.files import replacing
    from .progress import CountProgress

    if out is None:
        return write_predictions(predictions, sys.stdout, form)
    with (
        replacing(out, "surrogateescape") as file,  # names that aren't UTF-8, without loss
        CountProgress(console, n_paths) as progress,
    ):
        return write_predictions(progress.count(predictions), file, form)


def load_model(run: Path, device: str, false_alarms: float | None) -> "STSSAD":
    """The run's model, with another false alarm rate if one is given."""
    from ..runs.run import Run

    if false_alarms is not None:
        check_rate(false_alarms)
    model = Run.open(run).model(device=device)
    return model if false_alarms is None else model.set_threshold(false_alarms)


def format_result(model: "STSSAD", counts: "Counts", out: Path, heatmaps: Path | None) -> str:
    rate = f"{100 * model.false_alarms_:.3g} %"
    scores = f"{counts.n} images scored, {counts.flagged} flagged (false alarm rate {rate}): {out}"
    return scores if heatmaps is None else f"{scores}\nheatmaps: {heatmaps}"


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
