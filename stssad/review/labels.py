"""People's labels of images: good, defect or unsure, in the run's SQLite file at once.

Several people may label at the same time; an image's latest label counts, and none is deleted.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

from ..runs.folder import RunFolder
from ..storage.table import read_table, write_table

LABELS = ("good", "defect", "unsure")
COLUMNS = ("image_path", "label", "who", "at")
LONGEST = {"image": 4096, "who": 80}  # characters
TABLE = """
CREATE TABLE IF NOT EXISTS labels (
    id INTEGER PRIMARY KEY, image TEXT NOT NULL, label TEXT, who TEXT NOT NULL, at TEXT NOT NULL)
"""
INSERT = "INSERT INTO labels (image, label, who, at) VALUES (?, ?, ?, ?)"
LATEST = "SELECT max(id) FROM labels GROUP BY image"


@dataclass(frozen=True)
class Label:
    """A person's label of an image."""

    image: str
    label: str
    who: str = ""
    at: str = ""


class Labels:
    """Of one run. Each call has a connection of its own: threads and processes don't share one."""

    def __init__(self, folder: Path) -> None:
        self.path = RunFolder(folder).labels
        with self._connection() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(TABLE)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            opened = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            with closing(opened) as connection:
                connection.execute("PRAGMA synchronous = FULL")  # acknowledged means on the disk
                yield connection
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"{str(self.path)!r} is damaged ({error}); move it away to begin again"
            ) from None

    def add(self, image: str, label: str | None, who: str = "") -> int:
        """Store a label, or None to withdraw it; its number, once it is on the disk."""
        if label is not None and label not in LABELS:
            raise ValueError(f"a label is {', '.join(LABELS)}, got {label!r}")
        if len(image) > LONGEST["image"] or len(who) > LONGEST["who"]:
            raise ValueError("that name is too long")
        row = (encode_name(image), label, encode_name(who), format_now())
        with self._connection() as connection:
            number = connection.execute(INSERT, row).lastrowid
            assert number is not None
            return number

    def add_all(self, labels: Iterable[Label]) -> None:
        """Store labels that were made elsewhere, with who made them and when, all at once."""
        rows = [
            (encode_name(x.image), x.label, encode_name(x.who), x.at or format_now())
            for x in labels
        ]
        with self._connection() as connection:
            connection.execute("BEGIN")
            connection.executemany(INSERT, rows)
            connection.execute("COMMIT")

    def undo(self, who: str = "") -> str | None:
        """Withdraw this person's latest label that still counts; which image it was on."""
        with self._connection() as connection:
            latest = connection.execute(
                f"SELECT image FROM labels WHERE who = ? AND label IS NOT NULL AND id IN ({LATEST})"
                " ORDER BY id DESC LIMIT 1",
                (encode_name(who),),
            ).fetchone()
        if latest is None:
            return None
        image = decode_name(latest[0])
        self.add(image, None, who)
        return image

    def all(self) -> dict[str, Label]:
        """The latest label of each image, by the image's name."""
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT image, label, who, at FROM labels WHERE id IN ({LATEST}) "
                "AND label IS NOT NULL ORDER BY id"
            ).fetchall()
        return {
            decode_name(image): Label(decode_name(image), label, decode_name(who), at)
            for image, label, who, at in rows
        }


def encode_name(text: str) -> str:
    """Names that aren't UTF-8, as something that SQLite can hold."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def decode_name(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "surrogateescape")


def format_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def write_labels(labels: Iterable[Label], file: TextIO) -> None:
    rows = ((x.image, x.label, x.who, x.at) for x in labels)
    write_table(file, COLUMNS, (dict(zip(COLUMNS, row, strict=True)) for row in rows))


def read_labels(path: Path) -> dict[str, Label]:
    """From a CSV with the columns image_path and label; who and at may be left out."""
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {str(path)!r}; check the path")
    rows = read_table(path)
    if not rows or not {"image_path", "label"} <= set(rows[0]):
        raise ValueError(f"{str(path)!r} needs a header with image_path and label, and a row")
    labels = {}
    for number, row in enumerate(rows, start=2):
        if row.get("label") == "":  # of a list of all images, as the studio exports it
            continue
        label = parse_label(row, f"line {number} of {str(path)!r}")
        labels[label.image] = label
    return labels


def parse_label(row: Mapping[str, str], where: str) -> Label:
    image, label = row.get("image_path"), row.get("label")
    if not image or label not in LABELS:
        raise ValueError(f"{where}: a label is {', '.join(LABELS)}, got {label!r} for {image!r}")
    return Label(image, label, row.get("who", ""), row.get("at", ""))
