"""Images in, tensors out: the one place that opens an image file.

Images are (n, 3, m, m): uint8 where they come from files or uint8 arrays (a quarter of the
memory), float in [0, 1] otherwise.
"""

import hashlib
import math
import os
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .settings import Aspect, Reading
from .threads import in_order

if TYPE_CHECKING:
    from PIL.Image import Image

PathLike = str | os.PathLike[str]
# Tensors and arrays of images, a folder, or a list of files or of single images.
Images = Tensor | npt.NDArray[np.generic] | PathLike | Sequence[PathLike] | Sequence[Tensor]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"})
# What is decoded, whatever a file is called: Pillow knows others, some of which run other programs.
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")
PILLOW = r"PIL\."  # modules whose warnings are silenced
LOOK_AHEAD = 128  # images decoded before they are needed
SIZED = 64  # files whose size is looked at, of many
SIZE_STEP, LEAST_CHOSEN_SIZE = 32, 64  # of image sizes that are chosen by the files' own
WHITE_LEVELS = (1, 255, 1023, 4095, 16383, 65535)  # of grey images with more than 8 bits


class UnreadableError(ValueError):
    """A file that is no image, or a damaged one."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot read {str(path)!r}: {why}; repair or remove it")
        self.path, self.why = path, why


class MissingError(UnreadableError, FileNotFoundError):
    """A file that isn't there."""

    def __str__(self) -> str:
        return f"no such image: {str(self.path)!r}; check the path"


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
    if reading.may_shrink and side is not None:
        own_size = SIZE_STEP * math.ceil(side / SIZE_STEP)
        size = max(LEAST_CHOSEN_SIZE, min(reading.image_size, own_size))
        reading = replace(reading, image_size=size)
    return replace(reading, may_shrink=False), side


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


def shorter_side(path: Path) -> int | None:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        silence_pillow()
        return min(upright_size(path))
    except Exception:  # named when it is read
        return None


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


def tried(path: Path, reading: Reading) -> npt.NDArray[np.uint8] | UnreadableError:
    """The image, or why it can't be read."""
    try:
        return read_image(path, reading)
    except UnreadableError as error:
        # Only its words: tracebacks hold on to what was decoded so far.
        error.__traceback__ = error.__context__ = None
        return error


def read_image(path: Path, reading: Reading) -> npt.NDArray[np.uint8]:
    """One file as (m, m, 3): upright by its EXIF tag, RGB, resized to a square."""
    from PIL import Image, ImageOps

    m = reading.image_size
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
            raise UnreadableError(path, "it is not a regular file")
        silence_pillow()
        with Image.open(path, formats=FORMATS) as image:
            if reading.aspect == "stretch":
                image.draft("RGB", (2 * m, 2 * m))  # decodes large JPEGs at a smaller scale
            upright = ImageOps.exif_transpose(image)
            coloured = in_colour(upright, reading.white_level)
            return np.asarray(squared(coloured, m, reading.aspect).convert("RGB"))
    except FileNotFoundError:
        raise MissingError(path, "there is no such file") from None
    except UnreadableError:
        raise
    except Exception as error:  # damaged files make decoders raise nearly anything
        raise UnreadableError(path, reason(error)) from None


def upright_size(path: Path) -> tuple[int, int]:
    """Width and height of an image, upright by its EXIF tag."""
    from PIL import Image

    with Image.open(path, formats=FORMATS) as image:
        sideways = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
        return (image.height, image.width) if sideways else (image.width, image.height)


def silence_pillow() -> None:
    """No warnings of a large or odd file: it is read or it isn't.

    A filter that stays, not `catch_warnings`: decoders are threads, and where several of them save
    and restore the filters in turn, warnings of others may be lost for good.
    """
    if not any(getattr(f[3], "pattern", None) == PILLOW for f in warnings.filters):
        warnings.filterwarnings("ignore", module=PILLOW)


def reason(error: Exception) -> str:
    """Why a file could not be read, in a few words."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "it is empty, or not an image"
    if isinstance(error, Image.DecompressionBombError):
        return "it has too many pixels, as a decompression bomb would"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    return str(error) or type(error).__name__


def in_colour(image: "Image", white_level: float | None = None) -> "Image":
    """RGB from any mode, but grey stays grey: a third of the memory, as long as it is large.

    Deep grey is scaled, the same for all; transparency is put on white.
    """
    from PIL import Image

    if is_deep(image):
        image = Image.fromarray(as_bytes(np.asarray(image), white_level))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        transparent = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, transparent)
    return image if image.mode == "L" else image.convert("RGB")


def is_deep(image: "Image") -> bool:
    """Grey of more than 8 bits; deep colour is 8 bits already when Pillow has decoded it."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def as_bytes(values: npt.NDArray[np.generic], white_level: float | None) -> npt.NDArray[np.uint8]:
    """Deep grey (h, w) as 8 bits, `white_level` as 255; by rows, since such images are large."""
    if white_level is None:
        white_level = 1 if values.dtype.kind == "f" else 65535
    out = np.empty(values.shape, np.uint8)
    for rows in range(0, len(values), 256):
        with np.errstate(all="ignore"):  # floats of any size may stand in a file
            some = values[rows : rows + 256].astype(np.float32) * (255 / white_level)
            out[rows : rows + 256] = np.nan_to_num(np.clip(some, 0, 255)).round()
    return out


def find_white_level(paths: Iterable[Path]) -> int | None:
    """What the deep grey images among these files hold as white, the same for all; None: no such.

    The least of the usual depths (8, 10, 12, 14, 16 bits) that none exceeds: a camera of 12 bits
    stores them in files of 16.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        brightest = [top for top in in_order(pool, deep_maximum, paths, 8) if top is not None]
    if not brightest:
        return None
    top = max(brightest)
    return next((level for level in WHITE_LEVELS if top <= level), int(top))


def deep_maximum(path: Path) -> float | None:
    """The largest value of a deep grey image; None of any other, or where it can't be read."""
    from PIL import Image

    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        silence_pillow()
        with Image.open(path, formats=FORMATS) as image:
            top = float(np.asarray(image).max()) if is_deep(image) else math.nan
    except Exception:  # named when it is read
        return None
    return top if math.isfinite(top) else None


def squared(image: "Image", m: int, aspect: Aspect) -> "Image":
    """m x m pixels: stretched, cropped to the middle square, or padded with its mean colour."""
    from PIL import Image, ImageOps

    bilinear = Image.Resampling.BILINEAR  # averages over the pixels that it shrinks
    if aspect == "crop":
        return ImageOps.fit(image, (m, m), bilinear)
    if aspect == "pad":
        mean = image.resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
        return ImageOps.pad(image, (m, m), bilinear, color=mean)  # type: ignore[arg-type]
    return image.resize((m, m), bilinear)


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
