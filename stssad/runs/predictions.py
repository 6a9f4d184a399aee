"""Predictions for any number of files: streamed from disk through the model into CSV or JSON."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
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
from ..scoring.decision import PRICED
from ..scoring.false_discovery import q_values
from ..scoring.tail import NormalTail, ScoreArray
from ..storage.files import json_text
from ..storage.table import write_table


@dataclass(frozen=True)
class Prediction:
    """One image's result; the first three names are those of anomalib."""

    image_path: str
    pred_score: float
    pred_label: int
    p_value: float  # the share of normal images that score as high or higher
    q_value: float | None = None  # the false discovery rate at which its batch flags it

    @staticmethod
    def parse(row: Mapping[str, str]) -> "Prediction":
        """From a row of a table."""
        return Prediction(
            row["image_path"],
            float(row["pred_score"]),
            int(row["pred_label"]),
            float(row["p_value"]),
            float(row["q_value"]) if row.get("q_value") else None,
        )


IN_BATCH = tuple(f.name for f in fields(Prediction))
COLUMNS = tuple(name for name in IN_BATCH if name != "q_value")  # of images that come one by one


def make_predictions(
    model: STSSAD, paths: Sequence[Path], scores: ScoreArray
) -> Iterator[Prediction]:
    """Of scored images, each by itself; a score that isn't finite is an error."""
    if len(broken := np.flatnonzero(~np.isfinite(scores))):
        raise ValueError(
            f"the model gives no finite score for {str(paths[broken[0]])!r}; it is damaged: fit it "
            "again"
        )
    for path, score, p in zip(paths, scores, model.p_values(scores), strict=True):
        yield Prediction(str(path), float(score), int(score > model.threshold_), float(p))


def pool_predictions(model: STSSAD, paths: Sequence[Path]) -> list[Prediction]:
    """Of the pool that the model was fitted to, or refitted, as it decides on it."""
    rows = make_predictions(model, paths, model.decision_scores_)
    decided = zip(rows, model.labels_.tolist(), model.q_values_.tolist(), strict=True)
    return [replace(row, pred_label=label, q_value=q) for row, label, q in decided]


def judge_batch(rows: Iterable[Prediction], false_discoveries: float) -> list[Prediction]:
    """Labels of a whole batch, among whose flagged images this share may be normal."""
    all_rows = list(rows)
    q = q_values(np.array([row.p_value for row in all_rows]))
    both = zip(all_rows, q.tolist(), strict=True)
    return [replace(row, pred_label=int(x <= false_discoveries), q_value=x) for row, x in both]


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
    """How many were written, how many of them flagged, and at which other rates how many."""

    tail: NormalTail | None = None  # to count what other rates would flag
    n: int = 0
    flagged: int = 0
    prices: list[tuple[float, int]] = field(default_factory=list)

    def count(self, rows: Iterable[Prediction]) -> Iterator[Prediction]:
        limits = [] if self.tail is None else [self.tail.threshold(rate) for rate in PRICED]
        above = [0] * len(limits)
        for row in rows:
            self.n += 1
            self.flagged += row.pred_label
            above = [k + (row.pred_score > t) for k, t in zip(above, limits, strict=True)]
            yield row
        self.prices = list(zip(PRICED, above, strict=False))


def write_predictions(
    rows: Iterable[Prediction],
    file: TextIO,
    form: str,
    tail: NormalTail | None = None,
    names: Sequence[str] = COLUMNS,
) -> Counts:
    """As CSV or as one JSON list, a row at a time; `names` of the columns."""
    counts = Counts(tail)
    write = _write_json if form == "json" else _write_csv
    write(counts.count(rows), file, names)
    return counts


def _write_csv(rows: Iterable[Prediction], file: TextIO, names: Sequence[str]) -> None:
    write_table(file, names, (format_shares(row) for row in rows))


def format_shares(row: Prediction) -> dict[str, object]:
    shares = {"p_value": row.p_value, "q_value": row.q_value}
    texts = {name: None if x is None else f"{x:.6g}" for name, x in shares.items()}
    return {**asdict(row), **texts}


def _write_json(rows: Iterable[Prediction], file: TextIO, names: Sequence[str]) -> None:
    file.write("[")
    for n, row in enumerate(rows):
        content = {name: getattr(row, name) for name in names}
        file.write((",\n" if n else "\n") + json_text(content))
    file.write("\n]\n")
