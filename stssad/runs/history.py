"""history.csv: how every restart went."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..storage.files import replacing
from ..storage.table import write_table


def write_history(path: Path, candidates: Sequence[Any]) -> None:
    """Every iteration of every restart, a row each; a type's own columns are empty in others.

    Lists, such as gradients, take a column for each entry.
    """
    rows = [
        {"restart": c.number + 1, "augmentation": c.augmentation, **columns(record)}
        for c in candidates
        for record in c.history
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path) as file:
        write_table(file, names, rows)


def columns(record: Any) -> dict[str, Any]:
    """One iteration as it stands in a table."""
    row: dict[str, Any] = {}
    for name, value in asdict(record).items():
        if isinstance(value, dict):
            row |= value
        elif isinstance(value, list):
            row |= {f"{name}_{i}": each for i, each in enumerate(value)}
        else:
            row[name] = value
    return row
