"""One cell of the benchmark: which method on which task, and what it came to. Imports no torch."""

import json
import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ...storage.lock import lock_beside, locked


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
    details: dict[str, float] = field(default_factory=dict)  # what else a method gives; AUCs

    def to_json(self) -> str:
        content = asdict(self)
        return json.dumps({**content.pop("cell"), **content})

    @staticmethod
    def from_json(text: str) -> "Line":
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("no JSON object")
        names = [f.name for f in fields(Cell)]
        cell = Cell(**{name: content.pop(name) for name in names if name in content})
        line = Line(cell, **content)
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
        by_key: dict[str, Line] = {}
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]  # what comes after was being written
        for number, text in enumerate(whole.splitlines(), start=1):
            try:
                line = Line.from_json(text.decode())
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise ValueError(
                    f"line {number} of {str(path)!r} is damaged ({error}); delete that line"
                ) from None
            by_key[line.cell.key] = line
        return list(by_key.values())

    def testbeds(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.jsonl"))

    def all_lines(self) -> list[Line]:
        """Of every testbed."""
        return [line for name in self.testbeds() for line in self.lines(name)]

    def append(self, lines: Iterable[Line]) -> None:
        """On the disk when this returns. A torn last line is cut off first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for line in lines:
            path = self.path(line.cell.testbed)
            # Two runs may write to it.
            with locked(lock_beside(path), -1), open(path, "a+b") as file:
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
                file.write((line.to_json() + "\n").encode())
                file.flush()
                os.fsync(file.fileno())
