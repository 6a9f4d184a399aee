"""`stssad score`: a run and images to scores, labels and heatmaps."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .console import (
    Engine,
    FalseAlarms,
    FalseDiscoveries,
    HowSensitive,
    check_device,
    choose_decision,
    closed,
    make_console,
    warn,
    warn_unreadable,
)
from .scale import score_parts

if TYPE_CHECKING:
    from ..deploy.copies import FlaggedCopies
    from ..deploy.drift import DriftMonitor
    from ..deploy.heatmaps import HeatmapWriter
    from ..images.decode import UnreadableError
    from ..model import STSSAD
    from ..runs.predictions import Counts, Prediction, ScoredFile
    from ..scoring.decision import Decision
    from ..scoring.tail import NormalTail


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
    sensitivity: HowSensitive = None,
    false_alarms: FalseAlarms = None,
    false_discoveries: FalseDiscoveries = None,
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
    asked = choose_decision(sensitivity, false_alarms, false_discoveries)
    extras = Extras(heatmaps, copy_flagged, drift, false_discoveries)
    if ray is not None:
        if extras.any or strict or device != "cpu":
            raise ValueError(
                "--heatmaps, --copy-flagged, --drift, --false-discoveries, --strict and --device "
                "don't go with --ray"
            )
        rate = None if asked is None else asked.false_alarms
        score_parts(run, images, out, format, part_size, rate, engine, ray, quiet)
        return
    if format == "parquet":
        raise ValueError("--format parquet goes with --ray; use csv or json")
    check_device(device)
    check_out(out)
    model = load_model(run, device, asked)
    score_here(model, images, Form(out, format or "csv"), engine, strict, quiet, extras)


@dataclass(frozen=True)
class Extras:
    """What is wanted beside the scores."""

    heatmaps: Path | None
    copy_flagged: Path | None
    drift: bool
    false_discoveries: float | None

    @property
    def any(self) -> bool:
        folders = self.heatmaps, self.copy_flagged
        return self.drift or any(x is not None for x in (*folders, self.false_discoveries))


@dataclass(frozen=True)
class Form:
    """Where scores go, and as what."""

    out: Path | None
    format: str

    def write(
        self, rows: "Iterable[Prediction]", names: "Sequence[str]", tail: "NormalTail"
    ) -> "Counts":
        from ..runs.predictions import write_predictions
        from ..storage.files import replacing

        if self.out is None:
            return write_predictions(rows, sys.stdout, self.format, tail, names)
        # Names that aren't UTF-8 are written without loss.
        with replacing(self.out, "surrogateescape") as file:
            return write_predictions(rows, file, self.format, tail, names)


@dataclass(frozen=True)
class Outputs:
    """What is made of each scored image beside its prediction."""

    heatmaps: "HeatmapWriter | None"
    copies: "FlaggedCopies | None"
    monitor: "DriftMonitor | None"
    false_discoveries: float | None

    def process(self, scored: "Iterable[ScoredFile]") -> "Iterable[Prediction]":
        """Predictions, once heatmaps are written and the drift monitor has seen them; a batch that
        is judged by its false discoveries is held until its last image is scored."""
        rows = self._observed(scored)
        if self.false_discoveries is not None:
            from ..runs.predictions import judge_batch

            rows = judge_batch(rows, self.false_discoveries)
        return self._copied(rows)

    def _observed(self, scored: "Iterable[ScoredFile]") -> "Iterable[Prediction]":
        for image in scored:
            prediction = image.prediction
            if self.heatmaps is not None and image.map is not None:
                self.heatmaps(Path(prediction.image_path), image.map)
            if self.monitor is not None:
                self.monitor.observe(prediction, image.conditions)
            yield prediction

    def _copied(self, rows: "Iterable[Prediction]") -> "Iterator[Prediction]":
        for prediction in rows:
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
        extras.false_discoveries,
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
    form: Form,
    engine: str,
    strict: bool,
    quiet: bool,
    extras: Extras,
) -> None:
    """On this machine, into a file or to standard output."""
    from ..methods.engine import engine_for
    from ..runs.predictions import COLUMNS, IN_BATCH, list_paths, score_files, skip_unreadable
    from .progress import CountProgress

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
    console = make_console(quiet or form.out is None)  # standard output holds the scores
    with CountProgress(console, n_paths) as count:
        rows = outputs.process(count.count(readable))
        names = COLUMNS if extras.false_discoveries is None else IN_BATCH
        counts = form.write(rows, names, model.tail_)
    warn_unreadable(n_unreadable)
    if counts.n == 0:
        raise ValueError(f"no image of {images!r} could be read; look at the warnings")
    if form.out is not None:
        console.print(format_result(model, counts, form.out, extras))
    tell_of_drift(model, counts, outputs.monitor, form)


def tell_of_drift(
    model: "STSSAD", counts: "Counts", monitor: "DriftMonitor | None", form: Form
) -> None:
    """What a monitor has found; without one, that nearly all are flagged, where they are."""
    from ..deploy.drift import suspect_flags

    if monitor is not None:
        typer.echo(monitor.summarise(), err=form.out is None)
    elif text := suspect_flags(counts.n, counts.flagged, model.false_alarms_):
        warn(text)


def load_model(run: Path, device: str, asked: "Decision | None") -> "STSSAD":
    """The run's model, with another false alarm rate if one is asked for."""
    from ..runs.run import Run

    model = Run.open(run).model(device=device)
    if asked is None or asked.false_alarms is None:
        return model
    return model.set_threshold(asked.false_alarms)


def format_result(model: "STSSAD", counts: "Counts", out: Path, extras: Extras) -> str:
    """How many are flagged, by which rate, and how many other rates would flag."""
    from ..report.presentation import format_prices, format_rate

    if extras.false_discoveries is None:
        rate = f"false alarm rate {format_rate(model.false_alarms_)}"
    else:
        rate = f"false discovery rate {format_rate(extras.false_discoveries)}"
    lines = [
        f"{counts.n} images scored, {counts.flagged} flagged ({rate}): {out}",
        format_prices(counts.prices),
    ]
    return "\n".join(lines if extras.heatmaps is None else [*lines, f"heatmaps: {extras.heatmaps}"])


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
