"""Tables as CSV, the one dialect: whole rows, any name of a file, and nothing that a spreadsheet
would compute.

A text that begins as a formula does gets an apostrophe in front, which reading takes off again.
Names that aren't UTF-8 keep their bytes: files are opened with `surrogateescape`.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

FORMULA = ("=", "+", "-", "@", "\t", "\r")
GUARDED = re.compile(r"'+[=+\-@\t\r]")  # what `guarded` gives, or could be mistaken for it
BYTES = "surrogateescape"  # the `errors` of files of tables


def cell_text(value: Any) -> str:
    """A cell: numbers in full precision, nothing for None, guarded text."""
    if value is None:
        return ""
    return guarded(value) if isinstance(value, str) else str(value)


def guarded(text: str) -> str:
    """A name may begin with an apostrophe of its own before what looks like a formula."""
    return f"'{text}" if text.startswith(FORMULA) or GUARDED.match(text) else text


def unguarded(text: str) -> str:
    return text[1:] if GUARDED.match(text) else text


def write_table(file: TextIO, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """A header and the rows, as they come; a column that a row lacks is empty."""
    file.write(row_text(names))
    for row in rows:
        file.write(row_text(row.get(name) for name in names))


def row_text(values: Iterable[Any]) -> str:
    """One line of a table, for a file that is only added to."""
    file = io.StringIO()
    # With both in the end of a line, both are quoted in a cell; older Pythons look there alone.
    csv.writer(file, lineterminator="\r\n").writerow([cell_text(value) for value in values])
    return file.getvalue().removesuffix("\r\n") + "\n"


def read_rows(file: Iterable[str]) -> Iterator[dict[str, str]]:
    """Rows by the names of the header; what a short row lacks isn't in it."""
    for row in csv.DictReader(file):
        yield {
            name: unguarded(text)
            for name, text in row.items()
            if isinstance(name, str) and isinstance(text, str)
        }


def read_table(path: Path) -> list[dict[str, str]]:
    """All rows; a byte order mark, as spreadsheets write one, is none of the first name's."""
    with open(path, encoding="utf-8-sig", errors=BYTES, newline="") as file:
        try:
            return list(read_rows(file))
        except csv.Error as error:
            raise ValueError(f"{str(path)!r} is no CSV: {error}") from None
