"""Flagged images copied into a folder, none over another."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from .predictions import Prediction


class FlaggedCopies:
    """Copies keep the folders that their images lie in, below the folder that was scored."""

    def __init__(self, folder: Path, images: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"--copy-flagged {str(folder)!r} is a file; give a folder")
        if images.is_dir() and folder.resolve() == images.resolve():
            raise ValueError("--copy-flagged is the folder of the images itself; give another")
        self.folder, self.images = folder, images

    def copying(self, rows: Iterable[Prediction]) -> Iterator[Prediction]:
        """The same rows; flagged ones are copied on the way."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for row in rows:
            if row.pred_label:
                self._copy(Path(row.image_path))
            yield row

    def _copy(self, path: Path) -> None:
        inside = self.images.is_dir() and path.is_relative_to(self.images)
        wanted = self.folder / (path.relative_to(self.images) if inside else path.name)
        wanted.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, free(wanted))


def free(path: Path) -> Path:
    """The path, or with a number where it is taken."""
    number = 1
    found = path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return found
