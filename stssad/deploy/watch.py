"""Images scored as they arrive in a folder, into a CSV that is complete at any moment.

The CSV is the only state: on a new start it says which files are done, and the drift monitor is
fed again from its rows.
"""

import csv
import io
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..encoders.encoding import chunk_size
from ..images.decode import UnreadableError
from ..images.source import SUFFIXES, find_images
from ..methods.engine import Engine
from ..model import STSSAD
from ..runs.predictions import COLUMNS as PREDICTED
from ..runs.predictions import ScoredFile, score_chunk
from ..scoring.conditions import CONDITIONS
from ..storage.lock import HeldError, lock_beside, locked
from ..storage.table import BYTES, read_rows, row_text
from .drift import FEWEST, SCORE, Drift, DriftMonitor

STILL = 0.04  # seconds a file must not have changed before it is read
PATIENCE = 3.0  # seconds after which an unreadable file counts as damaged, not as half-written
TICK_MS = 20  # between checks of waiting files

Key = tuple[str, int, int]  # a state of a file: its name, size, and time of change


@dataclass(frozen=True)
class WatchedImage:
    """A row of the CSV; an error instead of a score where the file can't be read."""

    image_path: str
    pred_score: float | None
    pred_label: int | None
    p_value: float | None
    brightness: float | None
    contrast: float | None
    colour: float | None
    sharpness: float | None
    scored_at: str
    bytes: int
    modified_ns: int
    error: str = ""

    @property
    def key(self) -> Key:
        return self.image_path, self.bytes, self.modified_ns

    @property
    def conditions(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in CONDITIONS}

    def format_line(self) -> str:
        return row_text(asdict(self).values())


COLUMNS = [f.name for f in fields(WatchedImage)]
INTEGERS = ("pred_label", "bytes", "modified_ns")
TEXTS = ("image_path", "scored_at", "error")


def parse_row(row: dict[str, str]) -> WatchedImage:
    def value(name: str) -> Any:
        text = row[name]
        if name in TEXTS:
            return text
        if text == "":
            return None
        return int(text) if name in INTEGERS else float(text)

    return WatchedImage(**{name: value(name) for name in COLUMNS})


class Log:
    """The CSV: read once, then only appended to, whole lines at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(lock_beside(path)))
            except HeldError:
                raise ValueError(
                    f"another process writes to {str(path)!r}; stop it, or give --out"
                ) from None
            self._file = stack.enter_context(open(path, "ab+", buffering=0))
            self.rows = self._read()
            self._stack = stack.pop_all()

    def _read(self) -> list[WatchedImage]:
        self._file.seek(0)
        content = self._file.read()
        header = row_text(COLUMNS).encode()
        if not content:
            self._file.write(header)
            return []
        if not content.startswith(header):
            raise ValueError(
                f"{str(self.path)!r} wasn't written by this version of `stssad watch`; give --out "
                "another file"
            )
        rows, end = parse_whole_rows(content, len(header))
        if content[end:].count(b"\n") > 1:
            raise ValueError(
                f"{str(self.path)!r} is damaged after {len(rows)} rows; give --out another file"
            )
        self._file.truncate(end)
        return rows

    def add(self, rows: list[WatchedImage]) -> None:
        text = "".join(row.format_line() for row in rows).encode("utf-8", BYTES)
        self._file.write(text)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._stack.close()


def parse_whole_rows(content: bytes, start: int) -> tuple[list[WatchedImage], int]:
    """Rows up to the first incomplete one, and where the last of them ends."""
    rows: list[WatchedImage] = []
    table = read_rows(io.StringIO(content.decode("utf-8", BYTES), newline=""))
    try:
        for fields_ in table:
            row = parse_row(fields_)
            line = row.format_line().encode("utf-8", BYTES)
            if content[start : start + len(line)] != line:
                break
            rows.append(row)
            start += len(line)
    except (KeyError, TypeError, ValueError, csv.Error):
        pass
    return rows, start


@dataclass
class Waiting:
    """A file that isn't scored yet, and since when it hasn't changed."""

    key: Key
    since: float


class Watcher:
    """Scores files: `add` queues them, `work` scores those that have stopped changing."""

    def __init__(self, model: STSSAD, engine: Engine, log: Log, drift: bool = True) -> None:
        self.model, self.engine, self.log = model, engine, log
        self.done = {row.key for row in log.rows}
        self.waiting: dict[str, Waiting] = {}
        is_testable = len(model.normal_scores_) >= FEWEST
        self.monitor = DriftMonitor.for_model(model) if drift and is_testable else None
        for row in log.rows:
            self._observe(row)

    def _observe(self, row: WatchedImage) -> None:
        if self.monitor is not None and row.pred_score is not None:
            self.monitor.add({SCORE: row.pred_score, **row.conditions})

    @property
    def drift(self) -> Drift | None:
        return None if self.monitor is None else self.monitor.drift

    def add(self, paths: Iterable[Path]) -> None:
        for path in paths:
            key = find_key(path)
            if key is not None and key not in self.done:
                self.waiting[str(path)] = Waiting(key, time.monotonic())

    def work(self) -> list[WatchedImage]:
        """Score a chunk of the files that have stopped changing, and write their rows."""
        ready: list[str] = []
        now, most = time.monotonic(), chunk_size(self.model.image_size_)
        for name, state in list(self.waiting.items()):
            if len(ready) == most:
                break
            key = find_key(Path(name))
            if key is None or key in self.done:
                del self.waiting[name]
            elif key != state.key:
                self.waiting[name] = Waiting(key, now)
            elif now - state.since >= STILL:
                ready.append(name)
        rows = self._score(ready)
        if rows:
            self.log.add(rows)
        for row in rows:
            self.done.add(row.key)
            del self.waiting[row.image_path]
            self._observe(row)
        return rows

    def _score(self, names: list[str]) -> list[WatchedImage]:
        rows = []
        results = score_chunk(self.model, [Path(name) for name in names], self.engine)
        for name, image in zip(names, results, strict=True):
            state = self.waiting[name]
            if find_key(Path(name)) != state.key:
                continue  # it changed while it was being read
            if not isinstance(image, UnreadableError):
                rows.append(make_row(state.key, image))
            elif time.monotonic() - state.since >= PATIENCE:
                rows.append(make_error_row(state.key, image))
            else:  # behind the others: it may be half-written
                self.waiting[name] = self.waiting.pop(name)
        return rows


def make_row(key: Key, image: ScoredFile) -> WatchedImage:
    _, size, modified = key
    conditions = {name: round(value, 6) for name, value in image.conditions.items()}
    values = {name: getattr(image.prediction, name) for name in PREDICTED} | conditions
    return WatchedImage(**values, scored_at=format_now(), bytes=size, modified_ns=modified)


def make_error_row(key: Key, error: UnreadableError) -> WatchedImage:
    name, size, modified = key
    return WatchedImage(
        name, None, None, None, None, None, None, None, format_now(), size, modified, str(error)
    )


def format_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def find_key(path: Path) -> Key | None:
    """None where there is no such file, or its name isn't that of an image."""
    if path.suffix.lower() not in SUFFIXES or path.name.startswith("."):
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return (str(path), status.st_size, status.st_mtime_ns) if path.is_file() else None


def watch_changes(folder: Path) -> Iterator[list[Path]]:
    """Files that were added or changed; an empty list from time to time."""
    try:
        from watchfiles import Change, watch
    except ImportError:
        raise ImportError(
            "watch needs the package watchfiles; install it with: pip install 'stssad[watch]'"
        ) from None
    # watchfiles waits for events in its own threads, and yields on its time-out as well.
    for changes in watch(
        folder,
        debounce=TICK_MS,
        step=TICK_MS // 2,
        rust_timeout=TICK_MS,
        yield_on_timeout=True,
        watch_filter=lambda change, _: change != Change.deleted,
    ):
        yield [Path(name) for _, name in changes]


def score_arrivals(folder: Path, watcher: Watcher) -> Iterator[list[WatchedImage]]:
    """Rows as they are written, without end: first of present images, then of new ones."""
    started = False
    for changed in watch_changes(folder):
        if not started:  # only now: a file that arrives before the watch begins isn't missed
            started = True
            watcher.add(list_images(folder))
        watcher.add(changed)
        while rows := watcher.work():
            yield rows


def list_images(folder: Path) -> list[Path]:
    try:
        return find_images(folder)
    except ValueError:
        return []  # none yet
