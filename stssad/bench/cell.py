"""One cell of the benchmark: which method on which task, and what it came to. Imports no torch."""

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO


@dataclass(frozen=True)
class Cell:
    """All that names a result. `changes` are settings that differ from the preset's."""

    testbed: str
    task: str
    method: str
    seed: int
    protocol: str = "transductive"
    preset: str = "cpu"
    contamination: float | None = None
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return json.dumps([getattr(self, f.name) for f in fields(Cell)], sort_keys=True)


@dataclass(frozen=True)
class Line:
    """A cell with its result: one line of results/<testbed>.jsonl."""

    cell: Cell
    auc: float
    seconds: float
    learned: dict[str, Any]
    version: str
    n_train: int
    n_pool: int
    n_test: int
    made_of: str = ""  # differs where images, settings or the code of one's own did
    starts: list[dict[str, Any]] = field(default_factory=list)  # of a tuned method, each start
    details: dict[str, float] = field(default_factory=dict)  # what else a method tells; AUCs

    def to_json(self) -> str:
        facts = asdict(self)
        return json.dumps({**facts.pop("cell"), **facts})

    @staticmethod
    def from_json(text: str) -> "Line":
        facts = json.loads(text)
        if not isinstance(facts, dict):
            raise ValueError("no JSON object")
        names = [f.name for f in fields(Cell)]
        cell = Cell(**{name: facts.pop(name) for name in names if name in facts})
        line = Line(cell, **facts)
        texts = (cell.testbed, cell.task, cell.method, cell.protocol, cell.preset)
        if not all(isinstance(text, str) for text in texts) or type(cell.seed) is not int:
            raise ValueError("its cell is named by other than words and a seed")
        if not isinstance(cell.changes, dict) or not isinstance(line.starts, list):
            raise ValueError("changes or starts are of another kind")
        for name in ("auc", "seconds"):
            value = getattr(line, name)
            if type(value) not in (int, float) or not math.isfinite(value):
                raise ValueError(f"{name} is {value!r}")
        return line


class Store:
    """Append-only files, one for each testbed, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, testbed: str) -> Path:
        return self.folder / f"{testbed}.jsonl"

    def lines(self, testbed: str) -> list[Line]:
        """All whole lines; a last one that was torn by a stop is left out."""
        path = self.path(testbed)
        if not path.is_file():
            return []
        found: dict[str, Line] = {}
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]  # what comes after was being written
        for number, text in enumerate(whole.splitlines(), start=1):
            try:
                line = Line.from_json(text.decode())
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise ValueError(
                    f"line {number} of {str(path)!r} is damaged ({error}); delete that line"
                ) from None
            found[line.cell.key] = line
        return list(found.values())

    def testbeds(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.jsonl"))

    def append(self, lines: Iterable[Line]) -> None:
        """On the disk when this returns. A torn last line is cut off first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for line in lines:
            with open(self.path(line.cell.testbed), "a+b") as file, locked(file):
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
                file.write((line.to_json() + "\n").encode())
                file.flush()
                os.fsync(file.fileno())


@contextmanager
def locked(file: BinaryIO) -> Iterator[None]:
    """Alone with the file, since two runs may write to it; where there are no locks, without."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
