"""The runs of a folder, and the folders whose images may be seen: nothing outside of them."""

import io
import itertools
import os
import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.folder import RunFolder, State

if TYPE_CHECKING:
    from ..model import STSSAD
    from ..report.material import Material
    from ..runs.run import Run
    from ..runs.summary import Summary

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,79}")
MOST_LISTED = 100_000  # entries of a folder that is listed
LARGEST = 2000  # pixels to a side, of an image that is shown large
LOADING = threading.Lock()


class NotHereError(ValueError):
    """A name that is none of ours, or a path outside of what was given at the start."""


@dataclass(frozen=True)
class Entry:
    """A run, as the list of runs shows it."""

    name: str
    state: State
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Shelf:
    """`root`: the folder of the runs; `images`: folders whose images may be read."""

    root: Path
    images: tuple[Path, ...]

    def folder(self, name: str) -> Path:
        """A run's folder, by its name alone."""
        if not NAME.fullmatch(name) or name.endswith("."):
            raise NotHereError(f"{name!r} is not a name of a run")
        folder = self.root / name
        if folder.is_symlink() or not inside(folder, self.root):
            raise NotHereError(f"{name!r} leads out of the folder of the runs")
        return folder

    def existing(self, name: str) -> Path:
        folder = self.folder(name)
        if not RunFolder(folder).is_run:
            raise NotHereError(f"there is no run {name!r}")
        return folder

    def allowed(self, path: str) -> Path:
        """A folder or file of the user's, if it is in a folder that was given at the start."""
        wanted = Path(path)
        if "\0" in path or not self.shows(wanted):
            folders = ", ".join(str(each) for each in self.images)
            raise NotHereError(
                f"{path!r} isn't in {folders}; start the studio with --images for it"
            )
        return wanted.resolve()

    def list_roots(self) -> dict[str, Any]:
        """The folders that were given at the start, to choose from."""
        if len(self.images) == 1:
            return self.list_folder(str(self.images[0]))
        roots = [{"name": str(each), "path": str(each)} for each in self.images]
        return {"path": "", "parent": None, "folders": roots, "n_images": 0}

    def list_folder(self, path: str) -> dict[str, Any]:
        """The folders in a folder, how many images lie in it, and the way back."""
        from ..images.source import SUFFIXES

        folder = self.allowed(path)
        if not folder.is_dir():
            raise NotHereError(f"there is no folder {path!r}")
        names, n_images = [], 0
        with os.scandir(folder) as entries:
            for entry in itertools.islice(entries, MOST_LISTED):
                if entry.is_dir() and not entry.name.startswith("."):
                    names.append(entry.name)
                elif Path(entry.name).suffix.lower() in SUFFIXES:
                    n_images += 1
        shown = [name for name in sorted(names) if printable(name) and self.shows(folder / name)]
        up = str(folder.parent) if self.shows(folder.parent) else None
        if up is None and len(self.images) > 1:
            up = ""  # the list of roots
        inside = [{"name": name, "path": str(folder / name)} for name in shown]
        return {"path": str(folder), "parent": up, "folders": inside, "n_images": n_images}

    def shows(self, path: Path) -> bool:
        return any(inside(path, each) for each in self.images)

    def entries(self) -> list[Entry]:
        if not self.root.is_dir():
            return []
        found = []
        for folder in sorted(self.root.iterdir()):
            if not NAME.fullmatch(folder.name) or folder.is_symlink():
                continue
            run = RunFolder(folder)
            if (state := run.state) == "absent":
                continue
            found.append(Entry(folder.name, state, {} if state == "damaged" else run.metadata))
        return found


def printable(name: str) -> bool:
    """JSON has no place for a name that isn't text; such a folder can be given by its parent."""
    return not any("\ud800" <= c <= "\udfff" for c in name)


def inside(path: Path, folder: Path) -> bool:
    """Whether it is there once links are followed."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


@dataclass(frozen=True)
class OpenRun:
    """A finished run, read once for each state of its files."""

    run: "Run"
    summary: "Summary"
    material: "Material"
    paths: list[str]  # of the pool's images


def open_run(folder: Path) -> OpenRun:
    return _open_run(folder, stamp(folder))


def load_model(folder: Path) -> "STSSAD":
    """Built one at a time: two requests for the same model don't both wait for the disk."""
    with LOADING:
        return _load_model(folder, stamp(folder))


def stamp(folder: Path) -> tuple[int, int]:
    status = RunFolder(folder).model.stat()
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4)
def _open_run(folder: Path, _: tuple[int, int]) -> OpenRun:
    from ..report.material import Material
    from ..runs.run import Run

    run = Run.open(folder)
    paths = [row.image_path for row in run.predictions()]
    return OpenRun(run, run.summary(), Material.load(folder), paths)


@lru_cache(maxsize=2)
def _load_model(folder: Path, _: tuple[int, int]) -> "STSSAD":
    from ..runs.run import Run

    return Run.open(folder).model()


def check_number(i: int, n: int) -> None:
    if not 0 <= i < n:
        raise NotHereError(f"there is no image {i}")


def encode_large_image(path: Path, white_level: int | None) -> bytes:
    """The whole file as a JPEG, decoded as all images are and not larger than LARGEST."""
    from PIL import Image

    from ..images.decode import read_image, upright_size
    from ..images.reading import Reading

    width, height = upright_size(path)
    side = min(LARGEST, max(width, height))
    pixels = Image.fromarray(read_image(path, Reading(side, "stretch", white_level)))
    scale = side / max(width, height)
    shape = (max(1, round(width * scale)), max(1, round(height * scale)))
    file = io.BytesIO()
    pixels.resize(shape, Image.Resampling.BILINEAR).save(file, "JPEG", quality=90)
    return file.getvalue()
