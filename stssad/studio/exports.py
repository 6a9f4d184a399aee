"""What is exported: flagged images as an archive, and a list for a spreadsheet."""

import io
import os
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import IO

import numpy as np

from ..report.group_names import format_group, read_group_names
from ..storage.table import write_table
from .shelf import NotHereError, OpenRun, Shelf

COLUMNS = (
    "rank",
    "image",
    "flagged",
    "score",
    "p_value",
    "q_value",
    "group",
    "label",
    "file",
    "image_path",
)


def write_flagged(shelf: Shelf, opened: OpenRun, file: IO[bytes]) -> None:
    """Flagged images, the most anomalous first by their names; small ones where files are gone."""
    scores = opened.summary.pool_scores
    order = np.argsort(-scores, kind="stable").tolist()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for rank, i in enumerate(order, start=1):
            if scores[i] <= opened.summary.pool_threshold:
                break
            name = flatten_name(opened.material.names[i])
            try:
                path = shelf.allowed(opened.material.files[i])
                archive.write(path, f"{rank:04d}_{name}")
            except (NotHereError, OSError):
                archive.writestr(
                    f"{rank:04d}_{Path(name).stem}_small.jpg", opened.material.thumbnail(i)
                )


def flatten_name(name: str) -> str:
    """Without folders: an archive that writes nowhere else."""
    flat = name.replace("\\", "_").replace("/", "_").lstrip(".")
    return os.fsencode(flat).decode("utf-8", "replace")[-180:]


def format_list(opened: OpenRun, labels: dict[str, str]) -> str:
    """Sorted, with a byte order mark, short numbers, a link to each file, and the columns that
    `stssad review --labels` reads back."""
    summary, material = opened.summary, opened.material
    p_values, q_values = summary.p_values, summary.q_values
    group_names = read_group_names(opened.run.folder)

    def row(rank: int, i: int) -> dict[str, object]:
        return {
            "rank": rank,
            "image": material.names[i],
            "flagged": "yes" if summary.flagged[i] else "no",
            "score": Decimal(f"{summary.pool_scores[i]:.3f}"),
            "p_value": Decimal(f"{p_values[i]:.4f}"),
            "q_value": Decimal(f"{q_values[i]:.4f}"),
            "group": format_group(group_names, int(material.groups[i])),
            "label": labels.get(opened.paths[i], ""),
            "file": material.files[i],
            "image_path": opened.paths[i],
        }

    order = np.argsort(-summary.pool_scores, kind="stable").tolist()
    file = io.StringIO()
    write_table(file, COLUMNS, (row(rank, i) for rank, i in enumerate(order, start=1)))
    return "\ufeff" + file.getvalue()
