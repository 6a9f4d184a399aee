"""Flagged images, copied into a folder; no file is overwritten."""

import shutil
from pathlib import Path

from ..runs.predictions import Prediction


class FlaggedCopies:
    """Copies keep the folders that their images lie in, below the folder that was scored."""

    def __init__(self, folder: Path, images: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"--copy-flagged {str(folder)!r} is a file; give a folder")
        if images.is_dir() and folder.resolve() == images.resolve():
            raise ValueError("--copy-flagged is the folder of the images itself; give another")
        self.folder, self.images = folder, images
        folder.mkdir(parents=True, exist_ok=True)

    def copy(self, prediction: Prediction) -> None:
        """Copy the image if it is flagged."""
        if not prediction.pred_label:
            return
        path = Path(prediction.image_path)
        inside = self.images.is_dir() and path.is_relative_to(self.images)
        wanted = self.folder / (path.relative_to(self.images) if inside else path.name)
        wanted.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, find_free_path(wanted))


def find_free_path(wanted: Path) -> Path:
    """The path, with a number added where a file has it already."""
    path, number = wanted, 1
    while path.exists():
        number += 1
        path = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
    return path
