"""Images in, tensors out: arrays, folders and lists of files.

Images are (n, 3, m, m): uint8 where they come from files or uint8 arrays (a quarter of the
memory), float in [0, 1] otherwise.
"""

import hashlib
import os
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..parallel.threads import in_order
from .decode import UnreadableError, deep_maximum, shorter_side, tried
from .reading import Reading, usual_white_level

PathLike = str | os.PathLike[str]
# Tensors and arrays of images, a folder, or a list of files or of single images.
Images = Tensor | npt.NDArray[np.generic] | PathLike | Sequence[PathLike] | Sequence[Tensor]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"})
# Images and documents that people have, and that aren't read.
OTHER_SUFFIXES = frozenset(
    ".heic .heif .avif .gif .pdf .svg .psd .raw .dng .cr2 .nef .arw .jp2 .jfif .tga .exr .mp4 .avi "
    ".mov .zip".split()
)
LOOK_AHEAD = 128  # images decoded before they are needed
SIZED = 64  # files whose size is looked at, of many


def as_images(
    source: Images, reading: Reading, what: str, unreadable: list[str] | None = None
) -> Tensor:
    """Images from wherever they come, checked; `what` names them in errors.

    Files that can't be read are left out with a warning each, and named in `unreadable`; without
    such a list the first one is an error.
    """
    if isinstance(source, str | os.PathLike):
        return from_files(find_images(Path(source)), reading, unreadable)
    if isinstance(source, Tensor | np.ndarray):
        return checked(channels_first(as_tensor(source), what), what)
    if not isinstance(source, Iterable):
        as_tensor(source)  # names what it is
    sources = list(source)
    if sources and all(isinstance(item, str | os.PathLike) for item in sources):
        return from_files([Path(str(item)) for item in sources], reading, unreadable)
    return checked(channels_first(stacked([as_tensor(item) for item in sources], what), what), what)


@dataclass(frozen=True)
class FitImages:
    """What a fit is given, as it was read."""

    train: Tensor
    pool: Tensor | None
    reading: Reading
    file_side: int | None  # of the normal images' files, in pixels
    unreadable: list[str]


def of_size(size: int, images: Tensor) -> Tensor:
    """The images, if they have the size that a model was fitted to."""
    if images.shape[-1] != size:
        raise ValueError(
            f"this model was fitted to images of {size} pixels, got {images.shape[-1]}; resize them"
        )
    return images


def images_for_fit(train: Images, unlabeled: Images | None, reading: Reading) -> FitImages:
    """Normal images and a pool, if there is one; size and deep grey as the normal images have."""
    reading, side = settled(reading, files_among(train))
    unreadable: list[str] = []
    images = as_images(train, reading, "train", unreadable)
    pool = None if unlabeled is None else as_images(unlabeled, reading, "unlabeled", unreadable)
    reading = replace(reading, image_size=images.shape[-1])
    return FitImages(images, pool, reading, side, unreadable)


def settled(reading: Reading, normal: Sequence[Path]) -> tuple[Reading, int | None]:
    """What the files of normal images leave no doubt about, and their side in pixels; None: there
    are no files."""
    side = file_side(normal)
    if reading.white_level is None and normal:
        reading = replace(reading, white_level=find_white_level(normal))
    return reading.sized_for(side), side


def files_among(source: Images) -> list[Path]:
    """The files that a source of images names, if it does."""
    if isinstance(source, str | os.PathLike):
        return find_images(Path(source))
    if not isinstance(source, list | tuple):
        return []
    return [Path(p) for p in source if isinstance(p, str | os.PathLike)]


def file_side(paths: Sequence[Path]) -> int | None:
    """The shorter side of a usual one of these files, in pixels; None: none can be read."""
    step = max(1, len(paths) // SIZED)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        sides = [s for s in in_order(pool, shorter_side, paths[::step], 8) if s is not None]
    return sorted(sides)[len(sides) // 2] if sides else None


def find_white_level(paths: Iterable[Path]) -> int | None:
    """What the deep grey images among these files hold as white, for all the same; None: none."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return usual_white_level(
            top for top in in_order(pool, deep_maximum, paths, 8) if top is not None
        )


def from_files(paths: Sequence[Path], reading: Reading, unreadable: list[str] | None) -> Tensor:
    """Images of files; those that can't be read as `as_images` has it."""
    errors: list[UnreadableError] = []
    try:
        return read_images(paths, reading, None if unreadable is None else errors.append)[0]
    finally:
        for error in errors:
            warnings.warn(str(error), stacklevel=4)
            assert unreadable is not None
            unreadable.append(str(error.path))


def as_tensor(source: object) -> Tensor:
    if isinstance(source, Tensor):
        return source.detach().cpu()
    if isinstance(source, np.ndarray) and source.dtype.kind in "fiub":
        return torch.from_numpy(np.ascontiguousarray(source))
    raise TypeError(
        f"images must be tensors, numpy arrays or paths, got {type(source).__name__}; "
        "pass a tensor (n, 3, m, m), a uint8 array (n, m, m, 3) or (n, m, m), a folder or a list "
        "of paths"
    )


def stacked(images: list[Tensor], what: str) -> Tensor:
    """One tensor from single images, which must be of one size."""
    if not images:
        raise ValueError(f"{what} holds no images; pass at least one")
    shapes = sorted({tuple(p.shape) for p in images})
    if len(shapes) > 1:
        raise ValueError(
            f"all images of {what} must have one size, got {shapes[0]} and {shapes[1]}; "
            "resize them, or pass a folder or a list of paths, which are resized for you"
        )
    return torch.stack(images)


def channels_first(images: Tensor, what: str) -> Tensor:
    """(n, 3, m, m) from that, from (n, m, m, 3), or from grey images (n, m, m)."""
    if images.ndim == 3:
        images = images[:, None].expand(-1, 3, -1, -1)
    if images.ndim == 4 and images.shape[1] != 3 and images.shape[3] == 3:
        images = images.permute(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] != images.shape[3]:
        raise ValueError(
            f"{what} must be square images of shape (n, 3, m, m), (n, m, m, 3) or, grey, "
            f"(n, m, m), got shape {tuple(images.shape)}; crop or pad them"
        )
    return images.contiguous()


def checked(images: Tensor, what: str) -> Tensor:
    """uint8, or float32 within [0, 1]."""
    if len(images) == 0:
        raise ValueError(f"{what} holds no images; pass at least one")
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise ValueError(
            f"{what} must be uint8 in [0, 255] or float in [0, 1], got {images.dtype}; "
            "convert with .astype('uint8')"
        )
    broken = int((~torch.isfinite(images)).flatten(1).any(dim=1).sum())
    if broken:
        raise ValueError(
            f"{what} holds NaN or infinite values in {broken} of {len(images)} images; "
            "remove or repair them"
        )
    low, high = float(images.min()), float(images.max())
    if low < 0 or high > 1:
        hint = "divide by 255?" if low >= 0 else "undo the normalisation; the detector does its own"
        raise ValueError(f"{what} must lie in [0, 1], got [{low:.3g}, {high:.3g}]; {hint}")
    return images.float()


def find_images(folder: Path) -> list[Path]:
    """All image files below a folder, in a stable order, without hidden files and folders."""
    if not folder.exists():
        raise FileNotFoundError(f"no such folder: {str(folder)!r}; check the path")
    if not folder.is_dir():
        raise NotADirectoryError(
            f"{str(folder)!r} is a file, not a folder; pass its folder, or a list of paths"
        )
    found = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and not path.is_dir()  # links to nothing, pipes and the like are named when they are read
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not found:
        endings = " ".join(sorted(SUFFIXES))
        raise ValueError(
            f"no images in {str(folder)!r}; it is searched, with its subfolders, for {endings}"
        )
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def find_others(folder: Path) -> list[Path]:
    """Visible files below a folder that `find_images` leaves out: of kinds that aren't read."""
    others = (
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in OTHER_SUFFIXES
        and not path.is_dir()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    return sorted(others)


def read_images(
    paths: Sequence[Path],
    reading: Reading,
    on_unreadable: Callable[[UnreadableError], None] | None = None,
) -> tuple[Tensor, list[Path]]:
    """uint8 (n, 3, m, m) from files, and the files they come from.

    A file that can't be read is handed to `on_unreadable`, and left out; without it, raised.
    """
    kept, images = [], []
    for path, image in decoded(paths, reading):
        if isinstance(image, UnreadableError):
            if on_unreadable is None:
                raise image
            on_unreadable(image)
        else:
            kept.append(path)
            images.append(image)
    if not images:
        raise ValueError(f"none of the {len(paths)} files could be read; look at the warnings")
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous(), kept


def decoded(
    paths: Iterable[Path], reading: Reading
) -> Iterator[tuple[Path, npt.NDArray[np.uint8] | UnreadableError]]:
    """Each path with its image, in order; decoded by threads a little ahead of the reader."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        yield from in_order(pool, lambda path: (path, tried(path, reading)), paths, LOOK_AHEAD)


def duplicates(one: Sequence[Path], other: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Pairs of files, one from each list, with the same content; empty files don't count."""
    sizes = {path: size_of(path) for path in (*one, *other)}
    shared = {sizes[path] for path in one} & {sizes[path] for path in other} - {0}
    known = {digest(path): path for path in one if sizes[path] in shared}
    known.pop(None, None)
    found = ((digest(path), path) for path in other if sizes[path] in shared)
    return [(known[key], path) for key, path in found if key in known]


def size_of(path: Path) -> int:
    """In bytes; 0 of what isn't a file, which is said when it is decoded."""
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def digest(path: Path) -> bytes | None:
    """Of a file's content; None where it may not be read, which is said when it is decoded."""
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return None
