"""Predictions for any number of files: streamed from disk through the model into CSV or JSON."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
import torch

from .encoders.encoding import chunk_size
from .images import SUFFIXES, UnreadableError, find_images, tried
from .model import STSSAD
from .scoring.calibration import Scores
from .scoring.conditions import CONDITIONS, usual
from .scoring.threshold import ScoreArray
from .storage import json_text
from .threads import each


@dataclass(frozen=True)
class Prediction:
    """One image's result; the first three names are those of anomalib."""

    image_path: str
    pred_score: float
    pred_label: int
    p_value: float  # the share of normal images that score as high or higher


def predictions(model: STSSAD, paths: Sequence[Path], scores: ScoreArray) -> Iterator[Prediction]:
    """For images that were scored; a number that isn't finite is no score."""
    if len(broken := np.flatnonzero(~np.isfinite(scores))):
        raise ValueError(
            f"the model gives no finite score for {str(paths[broken[0]])!r}; it is damaged: fit it "
            "again"
        )
    for path, score, p in zip(paths, scores, model.p_values(scores), strict=True):
        yield Prediction(str(path), float(score), int(score > model.threshold_), float(p))


def score_files(
    model: STSSAD,
    paths: Iterable[Path],
    on_unreadable: Callable[[UnreadableError], None] | None,
    on_map: Callable[[Path, torch.Tensor], None] | None = None,
    engine: Callable[[torch.Tensor], Scores] | None = None,
    on_conditions: Callable[[Prediction, dict[str, float]], None] | None = None,
) -> Iterator[Prediction]:
    """Predictions for files, in order and in constant memory; unreadable ones are handed over.

    `on_map` is called with each image's anomaly map (h, w), as distances; `engine` scores images
    in the model's stead (`stssad.engine`); `on_conditions` is called with each prediction and the
    light its image was taken in (`stssad.scoring.conditions`).

    Without `on_unreadable` the first one is raised. Each worker decodes a chunk of files and runs
    the network on it, in the very chunks that `decision_function` makes of as many images.
    """

    score = engine or model.model_

    def work(chunk: list[Path]) -> "Chunk":
        found = [(path, tried(path, model.reading_)) for path in chunk]
        errors = [image for _, image in found if isinstance(image, UnreadableError)]
        good = [(path, x) for path, x in found if not isinstance(x, UnreadableError)]
        if not good:
            return Chunk([], None, errors)
        # Unreadable ones leave gaps: batches of every length would fill the engine's caches.
        pixels = np.stack([x for _, x in good] + [np.zeros_like(good[0][1])] * len(errors))
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
        light = None if on_conditions is None else usual(images[: len(good)])
        return Chunk([path for path, _ in good], score(images).first(len(good)), errors, light)

    for done in each(chunks(paths, chunk_size(model.image_size_)), work):
        kept, found = done.paths, done.scores
        for error in done.errors:
            if on_unreadable is None:
                raise error
            on_unreadable(error)
        if found is None:
            continue
        if on_map is not None and found.maps is not None:
            for path, distances in zip(kept, found.maps.cpu(), strict=True):
                on_map(path, distances)
        rows = list(predictions(model, kept, found.scores.cpu().numpy()))
        if on_conditions is not None and done.conditions is not None:
            for row, values in zip(rows, done.conditions.tolist(), strict=True):
                on_conditions(row, dict(zip(CONDITIONS, values, strict=True)))
        yield from rows


@dataclass(frozen=True)
class Chunk:
    """Some files, scored: those that could be read, and why the others couldn't."""

    paths: list[Path]
    scores: Scores | None
    errors: list[UnreadableError]
    conditions: torch.Tensor | None = None


def chunks(paths: Iterable[Path], size: int) -> Iterator[list[Path]]:
    todo = iter(paths)
    while chunk := list(islice(todo, size)):
        yield chunk


def listed_paths(source: str) -> Iterable[Path]:
    """A single image; the images of a folder; or those named, a line each, by a list file or by
    standard input (-)."""
    if source == "-":
        return _paths_in(getattr(sys.stdin, "buffer", sys.stdin))
    path = Path(source)
    if not path.exists() or path.is_dir():
        return find_images(path)
    if path.suffix.lower() in SUFFIXES:
        return [path]
    return _paths_in(path.read_bytes().split(b"\n"))


def _paths_in(lines: Iterable[bytes | str]) -> Iterator[Path]:
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

    def counting(self, rows: Iterable[Prediction]) -> Iterator[Prediction]:
        for row in rows:
            self.n += 1
            self.flagged += row.pred_label
            yield row


def write_predictions(rows: Iterable[Prediction], file: TextIO, form: str) -> Counts:
    """As CSV or as one JSON list, a row at a time."""
    counts = Counts()
    write = _write_json if form == "json" else _write_csv
    write(counts.counting(rows), file)
    return counts


def _write_csv(rows: Iterable[Prediction], file: TextIO) -> None:
    file.write(",".join(f.name for f in fields(Prediction)) + "\n")
    for row in rows:
        path = quoted(row.image_path)
        file.write(f"{path},{row.pred_score!r},{row.pred_label},{row.p_value:.6g}\n")


def quoted(name: str) -> str:
    """A field of a CSV: in quotes where it holds a comma, a quote, or what isn't printable."""
    if name.isprintable() and not set(name) & set(',"'):
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _write_json(rows: Iterable[Prediction], file: TextIO) -> None:
    file.write("[")
    for n, row in enumerate(rows):
        file.write((",\n" if n else "\n") + json_text(asdict(row)))
    file.write("\n]\n")
