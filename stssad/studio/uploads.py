"""Uploaded images: scored, shown, and removed.

They are decoded as all files are, under a name of ours; their own is only shown.
"""

import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from ..images.decode import UnreadableError
from ..images.source import SUFFIXES
from ..model import STSSAD
from ..report.material import SIDE, encode_jpeg
from ..runs.predictions import score_chunk

MOST_FILES = 500  # in an archive
MOST_BYTES = 64 * 2**20  # of one of its files, unpacked
LONGEST_NAME = 200  # characters that are shown


def results(model: STSSAD, content: Path, name: str) -> list[dict[str, Any]]:
    """Scores of a file, or of those in an archive; a reason for what can't be read."""
    name = name[-LONGEST_NAME:]
    if name.lower().endswith(".zip"):
        return list(in_archive(model, content, name))
    return [result(model, content, name)]


def in_archive(model: STSSAD, content: Path, name: str) -> Iterator[dict[str, Any]]:
    try:
        with zipfile.ZipFile(content) as archive:
            images = [each for each in archive.infolist() if is_image(each)]
            if len(images) > MOST_FILES:
                why = f"it holds {len(images)} images, more than {MOST_FILES}"
                yield {"name": name, "error": f"cannot read {name!r}: {why}"}
                return
            for each in images:
                yield unpacked(model, archive, each)
            if not images:
                yield {"name": name, "error": f"there are no images in {name!r}"}
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError, NotImplementedError) as error:
        yield {"name": name, "error": f"cannot read {name!r}: {error}"}


def is_image(entry: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(entry.filename)
    hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts if part != "..")
    return not entry.is_dir() and path.suffix.lower() in SUFFIXES and not hidden


def unpacked(model: STSSAD, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> dict[str, Any]:
    """One file of an archive; the size that it claims is not trusted."""
    name = entry.filename[-LONGEST_NAME:]
    with tempfile.NamedTemporaryFile() as file, archive.open(entry) as packed:
        n_read = 0
        while chunk := packed.read(2**20):
            n_read += len(chunk)
            if n_read > MOST_BYTES:
                why = f"it is larger than {MOST_BYTES // 2**20} MB"
                return {"name": name, "error": f"cannot read {name!r}: {why}"}
            file.write(chunk)
        file.flush()
        return result(model, Path(file.name), name)


def result(model: STSSAD, path: Path, name: str) -> dict[str, Any]:
    import base64

    import torch

    (image,) = score_chunk(model, [path], model.model_)
    if isinstance(image, UnreadableError):
        return {"name": name, "error": f"cannot read {name!r}: {image.why}"}
    row, thumbnail = image.prediction, encode_jpeg(image.pixels, SIDE)
    shown: dict[str, Any] = {
        "name": name,
        "score": row.pred_score,
        "flagged": bool(row.pred_label),
        "p": row.p_value,
        "image": "data:image/jpeg;base64," + base64.b64encode(thumbnail).decode(),
        "map": "",
        "mapSide": 0,
    }
    if image.map is not None and model.map_scale_ is not None:
        map_ = (model.map_scale_(image.map) * 255).round().to(torch.uint8)
        shown["map"] = base64.b64encode(map_.numpy().tobytes()).decode()
        shown["mapSide"] = int(map_.shape[-1])
    return shown
