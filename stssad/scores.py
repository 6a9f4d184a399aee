"""Scores of any number of files: streamed from disk through the detector into CSV or JSON."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
import torch

from .detector import chunk_size
from .images import UnreadableError, find_pictures, tried
from .model import STSSAD
from .scorer import Scored
from .threads import in_order, workers
from .threshold import Scores


@dataclass(frozen=True)
class Row:
    """One picture's result; the first three names are those of anomalib."""

    image_path: str
    pred_score: float
    pred_label: int
    normal_share_above: float  # of normal pictures, the share that scores as high or higher


def rows(model: STSSAD, paths: Sequence[Path], images: torch.Tensor) -> Iterator[Row]:
    """The results of pictures in memory."""
    yield from _rows(model, paths, model.decision_function(images))


def _rows(model: STSSAD, paths: Sequence[Path], scores: Scores) -> Iterator[Row]:
    shares = model.normal_share_above(scores)
    for path, score, share in zip(paths, scores, shares, strict=True):
        yield Row(str(path), float(score), int(score > model.threshold_), float(share))


def score_files(
    model: STSSAD,
    paths: Iterable[Path],
    on_unreadable: Callable[[UnreadableError], None] | None,
    on_places: Callable[[Path, torch.Tensor], None] | None = None,
) -> Iterator[Row]:
    """The results of files, in order and in constant memory; unreadable ones are handed over.

    `on_places` is called with each picture's distances (h, w), of which heatmaps are made.

    Without `on_unreadable` the first one is raised. Each worker decodes a chunk of files and runs
    the network on it, in the very chunks that `decision_function` makes of as many pictures.
    """

    def work(chunk: list[Path]) -> tuple[list[Path], Scored, list[UnreadableError]]:
        found = [(path, tried(path, model.reading_)) for path in chunk]
        errors = [picture for _, picture in found if isinstance(picture, UnreadableError)]
        good = [(path, x) for path, x in found if not isinstance(x, UnreadableError)]
        if not good:
            return [], Scored(torch.empty(0)), errors
        images = torch.from_numpy(np.stack([x for _, x in good])).permute(0, 3, 1, 2).contiguous()
        return [path for path, _ in good], model.scored_chunk(images), errors

    ahead, size = 2 * torch.get_num_threads(), chunk_size(model.image_size_)
    with workers() as pool:
        for kept, found, errors in in_order(pool, work, chunks(paths, size), ahead):
            for error in errors:
                if on_unreadable is None:
                    raise error
                on_unreadable(error)
            if on_places is not None and found.places is not None:
                for path, places in zip(kept, found.places, strict=True):
                    on_places(path, places)
            yield from _rows(model, kept, found.scores.numpy())


def chunks(paths: Iterable[Path], size: int) -> Iterator[list[Path]]:
    todo = iter(paths)
    while chunk := list(islice(todo, size)):
        yield chunk


def listed_paths(source: str) -> Iterable[Path]:
    """Files of a folder; or those named, a line each, by a list file or by standard input (-)."""
    if source == "-":
        return _paths_in(sys.stdin)
    path = Path(source)
    if path.is_file():
        return _paths_in(path.read_text(encoding="utf-8").splitlines())
    return find_pictures(path)


def _paths_in(lines: Iterable[str]) -> Iterator[Path]:
    return (Path(line.rstrip("\r\n")) for line in lines if line.strip())


def write_rows(results: Iterable[Row], file: TextIO, form: str) -> int:
    """As CSV or as one JSON list, a row at a time; returns how many."""
    write = _write_json if form == "json" else _write_csv
    return write(results, file)


def _write_csv(results: Iterable[Row], file: TextIO) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([f.name for f in fields(Row)])
    n = 0
    for n, row in enumerate(results, start=1):  # noqa: B007
        writer.writerow([row.image_path, repr(row.pred_score), row.pred_label,
                         f"{row.normal_share_above:.6g}"])  # fmt: skip
    return n


def _write_json(results: Iterable[Row], file: TextIO) -> int:
    n = 0
    file.write("[")
    for n, row in enumerate(results, start=1):
        file.write(("" if n == 1 else ",") + "\n" + json.dumps(asdict(row), ensure_ascii=False))
    file.write("\n]\n")
    return n
