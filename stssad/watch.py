"""Images scored as they arrive in a folder, into a CSV that is whole at any moment.

The CSV is all the memory there is: who starts again reads which files are done, and the drift
monitor sees every image again as it stands there.
"""

import csv
import io
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .drift import FEWEST, SCORE, Drift, DriftMonitor
from .encoders.encoding import chunk_size
from .engine import Engine
from .images import SUFFIXES, UnreadableError, find_images, tried
from .model import STSSAD
from .predictions import predictions, quoted
from .run import try_lock
from .scoring.conditions import CONDITIONS, usual

STILL = 0.04  # seconds a file must not have changed before it is read
PATIENCE = 3.0  # seconds after which a file that can't be read isn't half-written, but damaged
TICK_MS = 20  # between looks at files that are waited for

Key = tuple[str, int, int]  # a file as it is now: its name, bytes, and time of change


@dataclass(frozen=True)
class Watched:
    """A line of the CSV; without a score, and with an error, where the file can't be read."""

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

    def line(self) -> str:
        values = ["" if value is None else str(value) for value in asdict(self).values()]
        return ",".join(quoted(value) for value in values) + "\n"


NAMES = [f.name for f in fields(Watched)]
WHOLE = ("pred_label", "bytes", "modified_ns")
WORDS = ("image_path", "scored_at", "error")


def parsed(row: dict[str, str]) -> Watched:
    def value(name: str) -> Any:
        text = row[name]
        if not isinstance(text, str):
            raise ValueError(f"no {name}")
        if name in WORDS:
            return text
        if text == "":
            return None
        return int(text) if name in WHOLE else float(text)

    return Watched(**{name: value(name) for name in NAMES})


class Log:
    """The CSV: read once, then only added to, whole lines at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "ab+", buffering=0)
        try:
            if not try_lock(self._file):  # type: ignore[arg-type]
                raise ValueError(f"another process writes to {str(path)!r}; stop it, or give --out")
            self.rows = self._read()
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> list[Watched]:
        self._file.seek(0)
        content = self._file.read()
        header = (",".join(NAMES) + "\n").encode()
        if not content:
            self._file.write(header)
            return []
        if not content.startswith(header):
            raise ValueError(
                f"{str(self.path)!r} wasn't written by this version of `stssad watch`; give --out "
                "another file"
            )
        kept, whole = whole_rows(content, len(header))
        if content[whole:].count(b"\n") > 1:
            raise ValueError(
                f"{str(self.path)!r} is damaged after {len(kept)} rows; give --out another file"
            )
        self._file.truncate(whole)
        return kept

    def add(self, rows: list[Watched]) -> None:
        text = "".join(row.line() for row in rows).encode("utf-8", "surrogateescape")
        self._file.write(text)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def whole_rows(content: bytes, start: int) -> tuple[list[Watched], int]:
    """Rows up to the first that isn't whole, and where the last of them ends."""
    kept: list[Watched] = []
    rows = csv.DictReader(io.StringIO(content.decode("utf-8", "surrogateescape"), newline=""))
    try:
        for row in rows:
            found = parsed(row)
            line = found.line().encode("utf-8", "surrogateescape")
            if content[start : start + len(line)] != line:
                break
            kept.append(found)
            start += len(line)
    except (KeyError, TypeError, ValueError, csv.Error):
        pass
    return kept, start


@dataclass
class Waiting:
    """A file that has been seen, and since when it has been as it is."""

    key: Key
    since: float


class Watcher:
    """Scores what it is told of; `seen` names files, `work` does what can be done now."""

    def __init__(self, model: STSSAD, engine: Engine, log: Log, drift: bool = True) -> None:
        self.model, self.engine, self.log = model, engine, log
        self.done = {row.key for row in log.rows}
        self.waiting: dict[str, Waiting] = {}
        known = len(model.normal_scores_) >= FEWEST
        self.monitor = DriftMonitor.of(model) if drift and known else None
        for row in log.rows:
            self._observe(row)

    def _observe(self, row: Watched) -> None:
        if self.monitor is not None and row.pred_score is not None:
            self.monitor.add({SCORE: row.pred_score, **row.conditions})

    @property
    def drift(self) -> Drift | None:
        return None if self.monitor is None else self.monitor.drift

    def seen(self, paths: Iterable[Path]) -> None:
        for path in paths:
            key = key_of(path)
            if key is not None and key not in self.done:
                self.waiting[str(path)] = Waiting(key, time.monotonic())

    def work(self) -> list[Watched]:
        """Score the files that have stopped changing, a chunk of them, and write their lines."""
        ready: list[str] = []
        now, most = time.monotonic(), chunk_size(self.model.image_size_)
        for name, state in list(self.waiting.items()):
            if len(ready) == most:
                break
            key = key_of(Path(name))
            if key is None or key in self.done:
                del self.waiting[name]
            elif key != state.key:
                self.waiting[name] = Waiting(key, now)
            elif now - state.since >= STILL:
                ready.append(name)
        rows = self._scored(ready)
        if rows:
            self.log.add(rows)
        for row in rows:
            self.done.add(row.key)
            del self.waiting[row.image_path]
            self._observe(row)
        return rows

    def _scored(self, names: list[str]) -> list[Watched]:
        found, rows = [], []
        for name in names:
            image = tried(Path(name), self.model.reading_)
            state = self.waiting[name]
            if key_of(Path(name)) != state.key:
                continue  # it changed while it was read
            if not isinstance(image, UnreadableError):
                found.append((name, image))
            elif time.monotonic() - state.since >= PATIENCE:
                rows.append(unreadable(state.key, image))
            else:  # behind the others: it may be half-written
                self.waiting[name] = self.waiting.pop(name)
        if not found:
            return rows
        pixels = torch.from_numpy(np.stack([x for _, x in found])).permute(0, 3, 1, 2).contiguous()
        scores = self.engine(pixels).scores.cpu().numpy()
        light = usual(pixels).numpy().round(6)
        results = predictions(self.model, [Path(name) for name, _ in found], scores)
        for (name, _), result, measured in zip(found, results, light, strict=True):
            _, size, modified = self.waiting[name].key
            facts = asdict(result) | dict(zip(CONDITIONS, measured.tolist(), strict=True))
            rows.append(Watched(**facts, scored_at=now_text(), bytes=size, modified_ns=modified))
        return rows


def unreadable(key: Key, error: UnreadableError) -> Watched:
    name, size, modified = key
    return Watched(
        name, None, None, None, None, None, None, None, now_text(), size, modified, str(error)
    )


def now_text() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def key_of(path: Path) -> Key | None:
    """None where there is no such file, or none that is an image by its name."""
    if path.suffix.lower() not in SUFFIXES or path.name.startswith("."):
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return (str(path), found.st_size, found.st_mtime_ns) if path.is_file() else None


def changes_in(folder: Path) -> Iterator[list[Path]]:
    """Files that were added or changed; an empty list from time to time."""
    try:
        from watchfiles import Change, watch
    except ImportError:
        raise ImportError(
            "watch needs the package watchfiles; install it with: pip install 'stssad[watch]'"
        ) from None
    # watchfiles waits for events in its own threads, and yields on its time-out as well.
    for changes in watch(
        folder, debounce=TICK_MS, step=TICK_MS // 2, rust_timeout=TICK_MS, yield_on_timeout=True,
        watch_filter=lambda change, _: change != Change.deleted,
    ):  # fmt: skip
        yield [Path(name) for _, name in changes]


def watched(folder: Path, watcher: Watcher) -> Iterator[list[Watched]]:
    """Lines as they are written, for ever: first of what is there, then of what arrives."""
    started = False
    for changed in changes_in(folder):
        if not started:  # only now: what arrives between this look and the watch isn't missed
            started = True
            watcher.seen(images_in(folder))
        watcher.seen(changed)
        while rows := watcher.work():
            yield rows


def images_in(folder: Path) -> list[Path]:
    try:
        return find_images(folder)
    except ValueError:
        return []  # none yet
