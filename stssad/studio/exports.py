"""What one takes away: flagged images as an archive, and a list that a spreadsheet reads."""

import os
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from ..report.kind_names import called, kind_names
from .shelf import NotHereError, Opened, Shelf

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins so would be computed


def flagged_archive(shelf: Shelf, opened: Opened, file: IO[bytes]) -> None:
    """Flagged images, the most anomalous first by their names; small ones where files are gone."""
    scores = opened.summary.pool_scores
    order = np.argsort(-scores, kind="stable").tolist()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for rank, i in enumerate(order, start=1):
            if scores[i] <= opened.summary.threshold:
                break
            name = flat_name(opened.material.names[i])
            try:
                path = shelf.allowed(opened.material.files[i])
                archive.write(path, f"{rank:04d}_{name}")
            except (NotHereError, OSError):
                archive.writestr(f"{rank:04d}_{Path(name).stem}_small.jpg",
                                 opened.material.thumbnail(i))  # fmt: skip


def flat_name(name: str) -> str:
    """Without folders: an archive that writes nowhere else."""
    kept = name.replace("\\", "_").replace("/", "_").lstrip(".")
    return os.fsencode(kept).decode("utf-8", "replace")[-180:]


def spreadsheet(opened: Opened, marks: dict[str, str]) -> str:
    """Sorted, with a byte order mark, short numbers, and a link to each file."""
    summary, names = opened.summary, opened.material.names
    p_values, called_kinds = summary.p_values, kind_names(opened.run.folder)
    rows = ["rank,image,flagged,score,p_value,kind,mark,file"]
    for rank, i in enumerate(np.argsort(-summary.pool_scores, kind="stable").tolist(), start=1):
        kind = int(opened.material.kinds[i])
        cells = [
            str(rank), names[i], "yes" if summary.pool_scores[i] > summary.threshold else "no",
            f"{summary.pool_scores[i]:.3f}", f"{p_values[i]:.4f}",
            called(called_kinds, kind), marks.get(opened.paths[i], ""),
            opened.material.files[i],
        ]  # fmt: skip
        numbers = (0, 3, 4)
        rows.append(",".join(c if k in numbers else cell(c) for k, c in enumerate(cells)))
    return "\ufeff" + "\r\n".join(rows) + "\r\n"


def cell(text: str) -> str:
    text = os.fsencode(text).decode("utf-8", "backslashreplace")
    if text.startswith(FORMULA):
        text = f"'{text}"
    doubled = text.replace('"', '""')
    return f'"{doubled}"' if set(text) & set('",\r\n') else text
