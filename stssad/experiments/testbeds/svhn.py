"""SVHN (Netzer et al., 2011): the paper's 18 tasks, digits 2 and 6 against each other digit.

From the cropped digits `train_32x32.mat` and `test_32x32.mat`, or from one `.npz` of `x` (n, 32, 32
or n, 32, 32, 3; uint8) and `y` (n,), which has no training split: it is then divided by a fixed
seed, the same for every task and run.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...images.reading import Reading
from .task_images import TaskImages

SOURCE = "http://ufldl.stanford.edu/housenumbers (Format 2: cropped digits)"
NORMAL_DIGITS = (2, 6)
SPLIT_SEED = 0

Pixels = npt.NDArray[np.uint8]
Digits = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """At most so many digits: to train, and of each kind beside."""

    train: int | None = None
    each: int | None = None


@dataclass(frozen=True)
class Split:
    """Images (n, 3, m, m) and their digits, to train and to test."""

    train: tuple[Tensor, Digits]
    test: tuple[Tensor, Digits]


def tasks() -> list[str]:
    return [f"{n}/{a}" for n in NORMAL_DIGITS for a in range(10) if a != n]


def find_files(root: Path) -> list[Path]:
    """The two .mat files, or an .npz, in the folder or one of svhn*/ below it."""
    for folder in (root, *sorted(root.glob("svhn*"))):
        pair = [folder / f"{part}_32x32.mat" for part in ("train", "test")]
        if all(path.is_file() for path in pair):
            return pair
        for path in sorted(folder.glob("*.npz")):
            if is_digits(path):
                return [path]
    raise FileNotFoundError(
        f"no SVHN in {str(root)!r}: there are neither train_32x32.mat and test_32x32.mat nor an "
        f".npz of x and y, nor the same below svhn*/. Get the files from {SOURCE} (they are never "
        "downloaded for you), or name another folder with --data or STSSAD_DATA"
    )


def is_digits(path: Path) -> bool:
    """Whether an .npz is, or may be, one of images and digits: it is read, and checked, later."""
    try:
        with np.load(path, allow_pickle=False) as content:
            return {"x", "y"} <= set(content.files)
    except (ValueError, BadZipFile, OSError, EOFError):
        return True  # damaged: it will be named


def read_mat(path: Path) -> tuple[Pixels, Digits]:
    """Images (n, 32, 32, 3) and digits; the file calls zero 10."""
    from scipy.io import loadmat

    try:
        content = loadmat(path)
        x, y = content["X"].transpose(3, 0, 1, 2), content["y"].ravel().astype(np.int64) % 10
    except (KeyError, ValueError, NotImplementedError, OSError, TypeError) as error:
        raise ValueError(
            f"{str(path)!r} is not SVHN's file of X and y ({error}); get it again from {SOURCE}"
        ) from None
    return checked(path, x, y)


def read_npz(path: Path) -> tuple[Pixels, Digits]:
    try:
        with np.load(path, allow_pickle=False) as content:
            x, y = content["x"], content["y"].astype(np.int64) % 10  # zero may be 10
    except (KeyError, ValueError, BadZipFile, OSError, EOFError) as error:
        raise ValueError(f"{str(path)!r} is no .npz of x and y ({error}); write it again") from None
    if x.ndim == 3:
        x = np.repeat(x[..., None], 3, axis=3)
    return checked(path, x, y)


def checked(path: Path, x: Pixels, y: Digits) -> tuple[Pixels, Digits]:
    if x.ndim != 4 or x.shape[3] != 3 or x.dtype != np.uint8 or len(x) != len(y):
        raise ValueError(
            f"{str(path)!r} must hold uint8 images (n, m, m) or (n, m, m, 3) and n digits, got "
            f"{x.dtype} {x.shape} and {len(y)}"
        )
    return x, y


@lru_cache(maxsize=2)
def read_split(files: tuple[Path, ...], image_size: int) -> Split:
    """To train and to test; an .npz is halved for each digit, by a fixed seed."""
    if len(files) == 2:
        (x, y), (x_test, y_test) = (read_mat(path) for path in files)
        return Split((resized(x, image_size), y), (resized(x_test, image_size), y_test))
    x, y = read_npz(files[0])
    order = np.random.default_rng(SPLIT_SEED).permutation(len(y))
    first_half = np.zeros(len(y), dtype=bool)
    for digit in range(10):
        of_digit = order[y[order] == digit]
        first_half[of_digit[: len(of_digit) // 2]] = True
    images = resized(x, image_size)
    return Split(
        (images[torch.from_numpy(first_half)], y[first_half]),
        (images[torch.from_numpy(~first_half)], y[~first_half]),
    )


def resized(x: Pixels, image_size: int) -> Tensor:
    images = torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    if images.shape[-1] == image_size:
        return images
    floats = torch.nn.functional.interpolate(
        images.float(), size=(image_size, image_size), mode="bilinear", antialias=True
    )
    return floats.round().clamp(0, 255).to(torch.uint8)


def load(root: Path, task: str, reading: Reading, limits: Limits) -> TaskImages:
    """Images of one task, such as "2/7"; where there are more than the limits, a random few."""
    if task not in tasks():
        raise ValueError(f"unknown SVHN task {task!r}; use one of {', '.join(tasks())}")
    normal, anomaly = (int(digit) for digit in task.split("/"))
    split = read_split(tuple(find_files(root)), reading.image_size)
    return TaskImages(
        f"svhn/{task}",
        few(*split.train, normal, limits.train),
        few(*split.test, normal, limits.each),
        few(*split.test, anomaly, limits.each),
    )


def few(images: Tensor, digits: Digits, digit: int, limit: int | None) -> Tensor:
    """At most `limit` images of a digit, always the same."""
    index = np.flatnonzero(digits == digit)
    if not len(index):
        raise ValueError(f"this SVHN holds no digit {digit}; get the files again")
    return images[np.random.default_rng(SPLIT_SEED).permutation(index)[:limit]]
