"""Predictions in parts, one file each, and a manifest: parts that exist aren't scored again.

A part is written to a temporary file and renamed, and its content depends on its images alone: a
part that is written twice, after a node was lost, is the same.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..runs.predictions import Prediction
from ..storage.files import read_json, replacing, replacing_bytes, write_json
from ..storage.table import read_table, write_table

FORMATS = ("parquet", "csv")
COLUMNS = ("image_path", "pred_score", "pred_label", "p_value", "error")
ADVICE = "give --out another folder"


@dataclass(frozen=True)
class Row:
    """One image: its prediction, or why there is none."""

    image_path: str
    pred_score: float | None
    pred_label: int | None
    p_value: float | None
    error: str = ""

    @staticmethod
    def of(prediction: Prediction) -> "Row":
        p = prediction  # a part is no batch: its images have no q-values
        return Row(p.image_path, p.pred_score, p.pred_label, p.p_value)


@dataclass(frozen=True)
class Totals:
    """Over all parts."""

    n: int
    flagged: int
    unreadable: list[str]


@dataclass(frozen=True)
class OutputParts:
    """The folder of the parts and their manifest."""

    folder: Path
    form: str

    def path(self, number: int) -> Path:
        return self.folder / f"part-{number:06d}.{self.form}"

    def begin(self, request: dict[str, Any]) -> None:
        """Create the folder, or accept one that was begun with the same request."""
        manifest = self.folder / "manifest.json"
        if manifest.is_file():
            before = read_json(manifest, ADVICE).get("request")
            if before != request:
                raise ValueError(
                    f"{str(self.folder)!r} holds the scores of other images, of another model or "
                    f"in other parts; {ADVICE}"
                )
            return
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise ValueError(f"{str(self.folder)!r} isn't empty and isn't ours; {ADVICE}")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(manifest, {"request": request, "complete": False})

    def write(self, number: int, rows: list[Row]) -> None:
        if self.form == "csv":
            with replacing(self.path(number), "surrogateescape") as file:
                write_table(file, COLUMNS, map(asdict, rows))
            return
        import pyarrow
        import pyarrow.parquet

        types = zip(COLUMNS, ("string", "float64", "int8", "float64", "string"), strict=True)
        schema = pyarrow.schema([(name, getattr(pyarrow, type_)()) for name, type_ in types])
        table = pyarrow.Table.from_pylist([make_printable(row) for row in rows], schema)
        with replacing_bytes(self.path(number)) as file:
            pyarrow.parquet.write_table(table, file)

    def read(self, number: int) -> list[dict[str, Any]]:
        if self.form == "csv":
            return list(read_table(self.path(number)))
        import pyarrow.parquet

        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(self.path(number)).to_pylist()
        return rows

    def finish(self, n_parts: int) -> Totals:
        """Count all rows, and record in the manifest that it is complete."""
        n, flagged, unreadable = 0, 0, []
        for number in range(n_parts):
            for row in self.read(number):
                n += 1
                flagged += str(row["pred_label"]) == "1"
                unreadable += [row["error"]] if row["error"] else []
        manifest = self.folder / "manifest.json"
        counts = {"n_images": n, "flagged": flagged, "unreadable": len(unreadable)}
        names = [self.path(k).name for k in range(n_parts)]
        before = read_json(manifest, ADVICE)
        write_json(manifest, {**before, "complete": True, **counts, "parts": names})
        return Totals(n, flagged, unreadable)


def make_printable(row: Row) -> dict[str, Any]:
    """Parquet holds UTF-8 alone: a name that isn't is written with its bytes as \\xNN."""
    values = asdict(row)
    for name in ("image_path", "error"):
        text = values[name].encode("utf-8", "surrogateescape")
        values[name] = text.decode("utf-8", "backslashreplace")
    return values


def divide(addresses: Sequence[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(addresses), size):
        yield list(addresses[start : start + size])


def digest_addresses(addresses: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for address in addresses:
        digest.update(address.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()
