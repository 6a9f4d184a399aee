"""One file to pixels: the only place that opens an image."""

import math
import os
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .reading import Aspect, Reading

if TYPE_CHECKING:
    from PIL.Image import Image

# What is decoded, whatever the file's name: Pillow knows others, some of which run other programs.
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")
PILLOW = r"PIL\."  # modules whose warnings are silenced


class UnreadableError(ValueError):
    """A file that is no image, or a damaged one."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot read {str(path)!r}: {why}; repair or remove it")
        self.path, self.why = path, why


class MissingError(UnreadableError, FileNotFoundError):
    """A file that isn't there."""

    def __str__(self) -> str:
        return f"no such image: {str(self.path)!r}; check the path"


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


def read_mask(path: Path, m: int) -> npt.NDArray[np.bool_]:
    """A mask of defects as (m, m), True where more than half of a pixel's area is white."""
    from PIL import Image

    with Image.open(path, formats=FORMATS) as mask:
        small = mask.convert("L").resize((m, m), Image.Resampling.BOX)
    return np.asarray(small) > 127


def upright_size(path: Path) -> tuple[int, int]:
    """Width and height of an image, upright by its EXIF tag."""
    from PIL import Image

    with Image.open(path, formats=FORMATS) as image:
        sideways = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
        return (image.height, image.width) if sideways else (image.width, image.height)


@dataclass(frozen=True)
class Header:
    """What a file says of itself before it is decoded."""

    width: int
    height: int
    is_deep: bool  # grey of more than 8 bits


def read_header(path: Path) -> Header:
    """Of a file that can be read."""
    from PIL import Image

    with Image.open(path, formats=FORMATS) as image:
        deep = is_deep(image)
    return Header(*upright_size(path), deep)


def shorter_side(path: Path) -> int | None:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        silence_pillow()
        return min(upright_size(path))
    except Exception:  # named when it is read
        return None


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
            chunk = values[rows : rows + 256].astype(np.float32) * (255 / white_level)
            out[rows : rows + 256] = np.nan_to_num(np.clip(chunk, 0, 255)).round()
    return out


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
