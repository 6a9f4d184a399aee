"""Pictures in, tensors out: the one place that opens a picture file.

Pictures are (n, 3, m, m): uint8 where they come from files or uint8 arrays (a quarter of the
memory), float in [0, 1] otherwise.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

PathLike = str | os.PathLike[str]
# Tensors and arrays of pictures, a folder, or a list of files or of single pictures.
Pictures = Tensor | npt.NDArray[np.generic] | PathLike | Sequence[PathLike] | Sequence[Tensor]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"})


def as_images(source: Pictures, image_size: int, what: str) -> Tensor:
    """Pictures from wherever they come, checked; `what` names them in errors."""
    if isinstance(source, str | os.PathLike):
        return read_pictures(find_pictures(Path(source)), image_size)
    if isinstance(source, Tensor | np.ndarray):
        return checked(channels_first(as_tensor(source), what), what)
    sources = list(source)
    if sources and all(isinstance(item, str | os.PathLike) for item in sources):
        return read_pictures([Path(item) for item in sources if not isinstance(item, Tensor)],
                             image_size)  # fmt: skip
    return checked(channels_first(stacked([as_tensor(item) for item in sources], what), what), what)


def as_tensor(source: object) -> Tensor:
    if isinstance(source, Tensor):
        return source.detach().cpu()
    if isinstance(source, np.ndarray) and source.dtype.kind in "fiub":
        return torch.from_numpy(np.ascontiguousarray(source))
    raise TypeError(
        f"pictures must be tensors, numpy arrays or paths, got {type(source).__name__}; "
        "pass a tensor (n, 3, m, m), a uint8 array (n, m, m, 3), a folder or a list of paths"
    )


def stacked(pictures: list[Tensor], what: str) -> Tensor:
    """One tensor from single pictures, which must be of one size."""
    if not pictures:
        raise ValueError(f"{what} holds no pictures; pass at least one")
    shapes = sorted({tuple(p.shape) for p in pictures})
    if len(shapes) > 1:
        raise ValueError(
            f"all pictures of {what} must have one size, got {shapes[0]} and {shapes[1]}; "
            "resize them, or pass a folder or a list of paths, which are resized for you"
        )
    return torch.stack(pictures)


def channels_first(images: Tensor, what: str) -> Tensor:
    """(n, 3, m, m) from that or from (n, m, m, 3)."""
    if images.ndim == 4 and images.shape[1] != 3 and images.shape[3] == 3:
        images = images.permute(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] != images.shape[3]:
        raise ValueError(
            f"{what} must be square colour pictures of shape (n, 3, m, m) or (n, m, m, 3), "
            f"got shape {tuple(images.shape)}; crop or pad them, and repeat a grey channel 3 times"
        )
    return images.contiguous()


def checked(images: Tensor, what: str) -> Tensor:
    """uint8, or float32 within [0, 1]."""
    if len(images) == 0:
        raise ValueError(f"{what} holds no pictures; pass at least one")
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
            f"{what} holds NaN or infinite values in {broken} of {len(images)} pictures; "
            "remove or repair them"
        )
    low, high = float(images.min()), float(images.max())
    if low < 0 or high > 1:
        hint = "divide by 255?" if low >= 0 else "undo the normalisation; the detector does its own"
        raise ValueError(f"{what} must lie in [0, 1], got [{low:.3g}, {high:.3g}]; {hint}")
    return images.float()


def find_pictures(folder: Path) -> list[Path]:
    """All picture files below a folder, in a stable order, without hidden files and folders."""
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
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not found:
        endings = " ".join(sorted(SUFFIXES))
        raise ValueError(
            f"no pictures in {str(folder)!r}; it is searched, with its subfolders, for {endings}"
        )
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def read_pictures(paths: Sequence[Path], image_size: int) -> Tensor:
    """uint8 (n, 3, m, m) from files."""
    pictures = [read_picture(path, image_size) for path in paths]
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()


def read_picture(path: Path, image_size: int) -> npt.NDArray[np.uint8]:
    """One file as (m, m, 3): upright by its EXIF tag, RGB, stretched to a square."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            upright = ImageOps.exif_transpose(picture)
            square = upright.convert("RGB").resize((image_size, image_size), Image.Resampling.BOX)
    except FileNotFoundError:
        raise FileNotFoundError(f"no such picture: {str(path)!r}; check the path") from None
    except UnidentifiedImageError:
        raise ValueError(f"{str(path)!r} is not a picture; remove it from the list") from None
    return np.asarray(square)
