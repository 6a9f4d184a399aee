"""One dialect of CSV: any name survives, and no spreadsheet computes one."""

import csv
import io
from pathlib import Path

import pytest

from stssad.runs.predictions import Prediction, write_predictions
from stssad.storage.files import replacing
from stssad.storage.table import FORMULA, read_table, row_text, write_table

NASTY = [
    "plain.png",
    "=1+2.png",
    "+1.png",
    "-1.png",
    "@SUM(A1).png",
    "\tx.png",
    "\rx.png",
    "'=1.png",
    "''=1.png",
    "'quoted'.png",
    'com,ma "q".png',
    "new\nline.png",
    "car\rriage.png",
    "latin\udcff.png",
    "nel\x85.png",
    "line\u2028.png",
    " space .png",
    "",
    "-1.5",
    "1e5",
]


@pytest.mark.parametrize("name", NASTY)
def test_names_survive_and_none_is_a_formula(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.csv"
    with replacing(path, "surrogateescape") as file:
        write_table(file, ["name", "score"], [{"name": name, "score": -1.25}, {"name": "b"}])
    assert read_table(path) == [{"name": name, "score": "-1.25"}, {"name": "b", "score": ""}]
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        plain = list(csv.DictReader(file))
    assert not plain[0]["name"].startswith(FORMULA) and plain[0]["score"] == "-1.25"


def test_rows_that_are_added_are_those_of_a_table() -> None:
    file = io.StringIO()
    write_table(file, ["a", "b"], [{"a": "=x,", "b": None}, {"a": 1.5, "b": 0}])
    assert file.getvalue() == row_text(["a", "b"]) + row_text(["=x,", None]) + row_text([1.5, 0])


@pytest.mark.parametrize("name", NASTY)
def test_scores_are_read_as_they_were_written(tmp_path: Path, name: str) -> None:
    path, row = tmp_path / "s.csv", Prediction(name, -0.1 - 0.2, 1, 0.125)
    with replacing(path, "surrogateescape") as file:
        write_predictions([row], file, "csv")
    assert [Prediction.parse(each) for each in read_table(path)] == [row]


def test_what_is_no_csv_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"x" * 200_000 + b"\n")
    with pytest.raises(ValueError, match="is no CSV"):
        read_table(path)
