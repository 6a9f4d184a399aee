"""Predictions for any number of files: streamed from disk through the model into CSV or JSON."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
import torch

from ..encoders.encoding import chunk_size
from ..images.decode import UnreadableError, tried
from ..images.source import SUFFIXES, find_images
from ..methods.engine import Engine
from ..model import STSSAD
from ..parallel.threads import each
from ..scoring.conditions import CONDITIONS, measure_conditions
from ..scoring.threshold import ScoreArray
from ..storage.files import json_text
from ..storage.table import write_table


@dataclass(frozen=True)
class Prediction:
    """One image's result; the first three names are those of anomalib."""

    image_path: str
    pred_score: float
    pred_label: int
    p_value: float  # the share of normal images that score as high or higher

    @staticmethod
    def parse(row: Mapping[str, str]) -> "Prediction":
        """From a row of a table."""
        return Prediction(
            row["image_path"],
            float(row["pred_score"]),
            int(row["pred_label"]),
            float(row["p_value"]),
        )


COLUMNS = tuple(f.name for f in fields(Prediction))


def make_predictions(
    model: STSSAD, paths: Sequence[Path], scores: ScoreArray
) -> Iterator[Prediction]:
    """Of scored images; a score that isn't finite is an error."""
    if len(broken := np.flatnonzero(~np.isfinite(scores))):
        raise ValueError(
            f"the model gives no finite score for {str(paths[broken[0]])!r}; it is damaged: fit it "
            "again"
        )
    for path, score, p in zip(paths, scores, model.p_values(scores), strict=True):
        yield Prediction(str(path), float(score), int(score > model.threshold_), float(p))


@dataclass(frozen=True)
class ScoredFile:
    """One image's prediction, its anomaly map as distances (h, w), and its pixels (3, m, m)."""

    prediction: Prediction
    map: torch.Tensor | None
    pixels: torch.Tensor

    @property
    def conditions(self) -> dict[str, float]:
        """Brightness, contrast, ... (`stssad.scoring.conditions`)."""
        return dict(zip(CONDITIONS, measure_conditions(self.pixels[None])[0].tolist(), strict=True))


def score_chunk(
    model: STSSAD, paths: Sequence[Path], engine: Engine
) -> list[ScoredFile | UnreadableError]:
    """A few files, in their order, each with its score or the error of reading it: the one place
    where files become scores."""
    decoded = [tried(path, model.reading_) for path in paths]
    images = [image for image in decoded if not isinstance(image, UnreadableError)]
    if not images:
        return [image for image in decoded if isinstance(image, UnreadableError)]
    # Unreadable ones leave gaps: batches of every length would fill the engine's caches.
    gaps = [np.zeros_like(images[0])] * (len(decoded) - len(images))
    pixels = torch.from_numpy(np.stack(images + gaps)).permute(0, 3, 1, 2).contiguous()
    scores = engine(pixels).first(len(images))
    maps = [None] * len(images) if scores.maps is None else list(scores.maps.cpu())
    both = zip(paths, decoded, strict=True)
    good = [path for path, image in both if not isinstance(image, UnreadableError)]
    rows = make_predictions(model, good, scores.scores.cpu().numpy())
    scored = map(ScoredFile, rows, maps, pixels[: len(images)])
    return [image if isinstance(image, UnreadableError) else next(scored) for image in decoded]


def score_files(
    model: STSSAD, paths: Iterable[Path], engine: Engine | None = None
) -> Iterator[ScoredFile | UnreadableError]:
    """Any number of files, in their order and in constant memory.

    Each worker decodes a chunk of files and runs the network on it, in the very chunks that
    `decision_function` makes of as many images; `engine` scores in the model's stead.
    """

    def work(chunk: list[Path]) -> list[ScoredFile | UnreadableError]:
        return score_chunk(model, chunk, engine or model.model_)

    for done in each(split_paths(paths, chunk_size(model.image_size_)), work):
        yield from done


def skip_unreadable(
    scored: Iterable[ScoredFile | UnreadableError],
    on_unreadable: Callable[[UnreadableError], None] | None,
) -> Iterator[ScoredFile]:
    """Those that could be read; the errors of others are passed on, or raised without a handler."""
    for result in scored:
        if not isinstance(result, UnreadableError):
            yield result
        elif on_unreadable is None:
            raise result
        else:
            on_unreadable(result)


def split_paths(paths: Iterable[Path], size: int) -> Iterator[list[Path]]:
    remaining = iter(paths)
    while chunk := list(islice(remaining, size)):
        yield chunk


def list_paths(source: str) -> Iterable[Path]:
    """A single image; the images of a folder; or those named, a line each, by a list file or by
    standard input (-)."""
    if source == "-":
        return _parse_paths(getattr(sys.stdin, "buffer", sys.stdin))
    path = Path(source)
    if not path.exists() or path.is_dir():
        return find_images(path)
    if path.suffix.lower() in SUFFIXES:
        return [path]
    return _parse_paths(path.read_bytes().split(b"\n"))


def _parse_paths(lines: Iterable[bytes | str]) -> Iterator[Path]:
    """In the file system's own encoding, without loss; a byte order mark is none of a name's."""
    for number, line in enumerate(lines):
        name = os.fsdecode(line).rstrip("\r\n")
        if number == 0:
            name = name.removeprefix("\ufeff")
        if name.strip():
            yield Path(name)


@dataclass
class Counts:
    """How many were written, and how many of them flagged."""

    n: int = 0
    flagged: int = 0

    def count(self, rows: Iterable[Prediction]) -> Iterator[Prediction]:
        for row in rows:
            self.n += 1
            self.flagged += row.pred_label
            yield row


def write_predictions(rows: Iterable[Prediction], file: TextIO, form: str) -> Counts:
    """As CSV or as one JSON list, a row at a time."""
    counts = Counts()
    write = _write_json if form == "json" else _write_csv
    write(counts.count(rows), file)
    return counts


def _write_csv(rows: Iterable[Prediction], file: TextIO) -> None:
    content = ({**asdict(row), "p_value": f"{row.p_value:.6g}"} for row in rows)
    write_table(file, COLUMNS, content)


def _write_json(rows: Iterable[Prediction], file: TextIO) -> None:
    file.write("[")
    for n, row in enumerate(rows):
        file.write((",\n" if n else "\n") + json_text(asdict(row)))
    file.write("\n]\n")
