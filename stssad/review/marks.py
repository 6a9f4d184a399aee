"""Marks: good, defect or unsure, kept in the run's SQLite file the moment they are made.

Several people may mark at once; the last word on an image counts, and every word is kept.
"""

import csv
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

from ..predictions import quoted

MARKS = ("good", "defect", "unsure")
NAMES = ("image_path", "mark", "who", "at")
LONGEST = {"image": 4096, "who": 80}  # characters
FILE = "marks.sqlite"
TABLE = """
CREATE TABLE IF NOT EXISTS marks (
    id INTEGER PRIMARY KEY, image TEXT NOT NULL, mark TEXT, who TEXT NOT NULL, at TEXT NOT NULL)
"""
LAST = "SELECT max(id) FROM marks GROUP BY image"


@dataclass(frozen=True)
class Mark:
    """What somebody called an image."""

    image: str
    mark: str
    who: str = ""
    at: str = ""


class Marks:
    """Of one run. Each call has a connection of its own: threads and processes don't share one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        with self._connection() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(TABLE)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as found:
                found.execute("PRAGMA synchronous = FULL")  # what is acknowledged is on the disk
                yield found
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"{str(self.path)!r} is damaged ({error}); move it away to begin again"
            ) from None

    def add(self, image: str, mark: str | None, who: str = "") -> int:
        """A mark, or None to take it back; its number, once it is on the disk."""
        if mark is not None and mark not in MARKS:
            raise ValueError(f"a mark is {', '.join(MARKS)}, got {mark!r}")
        if len(image) > LONGEST["image"] or len(who) > LONGEST["who"]:
            raise ValueError("that name is too long")
        row = (encoded(image), mark, encoded(who), now())
        with self._connection() as connection:
            added = connection.execute(
                "INSERT INTO marks (image, mark, who, at) VALUES (?, ?, ?, ?)", row
            )
            assert added.lastrowid is not None
            return added.lastrowid

    def take(self, marks: Iterable[Mark]) -> None:
        """Marks that were made elsewhere, with who made them and when, all at once."""
        rows = [(encoded(m.image), m.mark, encoded(m.who), m.at or now()) for m in marks]
        with self._connection() as connection:
            connection.execute("BEGIN")
            connection.executemany(
                "INSERT INTO marks (image, mark, who, at) VALUES (?, ?, ?, ?)", rows
            )
            connection.execute("COMMIT")

    def undo(self, who: str = "") -> str | None:
        """Take back the last mark that this person made and that still counts; whose it was."""
        with self._connection() as connection:
            last = connection.execute(
                f"SELECT image FROM marks WHERE who = ? AND mark IS NOT NULL AND id IN ({LAST}) "
                "ORDER BY id DESC LIMIT 1",
                (encoded(who),),
            ).fetchone()
        if last is None:
            return None
        image = decoded(last[0])
        self.add(image, None, who)
        return image

    def all(self) -> dict[str, Mark]:
        """The last word on each image, by its name."""
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT image, mark, who, at FROM marks WHERE id IN ({LAST}) "
                "AND mark IS NOT NULL ORDER BY id"
            ).fetchall()
        return {decoded(r[0]): Mark(decoded(r[0]), r[1], decoded(r[2]), r[3]) for r in rows}


def encoded(text: str) -> str:
    """Names that aren't UTF-8, as something that SQLite can hold."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def decoded(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "surrogateescape")


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def write_marks(marks: Iterable[Mark], file: TextIO) -> None:
    file.write(",".join(NAMES) + "\n")
    for each in marks:
        row = (each.image, each.mark, each.who, each.at)
        file.write(",".join(quoted(value) for value in row) + "\n")


def read_marks(path: Path) -> dict[str, Mark]:
    """From a CSV with the columns image_path and mark; who and at may be left out."""
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {str(path)!r}; check the path")
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        try:
            rows = list(csv.DictReader(file))
        except csv.Error as error:
            raise ValueError(f"{str(path)!r} is no CSV: {error}") from None
    if not rows or not {"image_path", "mark"} <= set(rows[0]):
        raise ValueError(f"{str(path)!r} needs a header with image_path and mark, and a row")
    found = {}
    for number, row in enumerate(rows, start=2):
        mark = checked(row, f"line {number} of {str(path)!r}")
        found[mark.image] = mark
    return found


def checked(row: Mapping[str, str | None], where: str) -> Mark:
    image, mark = row["image_path"], row["mark"]
    if not image or mark not in MARKS:
        raise ValueError(f"{where}: a mark is {', '.join(MARKS)}, got {mark!r} for {image!r}")
    return Mark(image, mark, row.get("who") or "", row.get("at") or "")
