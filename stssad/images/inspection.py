"""Are the images fit for a fit? What a person would want to know of two folders before it.

Everything is looked at small, so that a thousand files take seconds, and nothing here changes what
is fitted: remarks name files, and say what to do.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from .decode import Header, UnreadableError, read_header
from .reading import Reading
from .source import decoded, duplicates, find_images, find_others
from .twins import Thumbnails, make_thumbnails, near_pairs

LOOKED_AT = 64  # pixels of a side
FEW_NORMAL, FEW_IN_POOL = 20, 30
FEWEST_USUAL = 8  # images that can say what is usual
EMPTY = 2.0  # grey levels of contrast, below which an image shows nothing
ODD = 8.0  # robust standard deviations from the usual image
LEAST_ODD = {"light": 12.0, "sharpness": 0.7, "framing": 0.2}  # what is odd at the least
RATIO_STEP = 0.1  # in the logarithm of the aspect ratio
LEAST_SCALE = 1.25  # between sizes that are worth a note
NAMED = 3  # files that a sentence names
PLURALS = {"copy": "copies"}

Severity = Literal["error", "warning", "note"]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Remark:
    """One thing that is odd about a folder's files, and which they are."""

    severity: Severity
    code: str
    text: str
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(self.files[:NAMED])
        more = f" and {len(self.files) - NAMED} more" if len(self.files) > NAMED else ""
        return f"{self.text}: {shown}{more}." if self.files else f"{self.text}."

    def content(self) -> dict[str, Any]:
        return {**asdict(self), "files": list(self.files)}

    @staticmethod
    def parse(content: dict[str, Any]) -> "Remark":
        """What `content` gave."""
        return Remark(**{**content, "files": tuple(content["files"])})


@dataclass(frozen=True)
class Folder:
    """A folder's files as an inspection sees them, each of those that could be read."""

    name: str  # normal or unlabeled
    root: Path | None
    paths: list[Path]
    headers: list[Header]
    thumbnails: Thumbnails
    sharpness: Values
    unreadable: list[UnreadableError]
    skipped: list[Path]  # of other kinds

    @staticmethod
    def read(name: str, root: Path) -> "Folder":
        """All files below a folder."""
        paths: list[Path] = []
        pixels: list[npt.NDArray[np.uint8]] = []
        unreadable: list[UnreadableError] = []
        for path, image in decoded(find_images(root), Reading(LOOKED_AT)):
            if isinstance(image, UnreadableError):
                unreadable.append(image)
            else:
                paths.append(path)
                pixels.append(image)
        shape = (0, LOOKED_AT, LOOKED_AT, 3)
        stacked = np.stack(pixels) if pixels else np.empty(shape, np.uint8)
        images = torch.from_numpy(stacked).permute(0, 3, 1, 2)
        return Folder.of(name, root, paths, images, unreadable)

    @staticmethod
    def of(
        name: str,
        root: Path | None,
        paths: list[Path],
        images: Tensor,
        unreadable: Sequence[UnreadableError],
    ) -> "Folder":
        """Of images (n, 3, m, m) that are read already; `root` is searched for other files."""
        small = [make_small(chunk) for chunk in torch.split(images, 256)] if len(images) else []
        seen = torch.cat(small) if small else torch.empty(0, 3, LOOKED_AT, LOOKED_AT)
        return Folder(
            name,
            root,
            paths,
            [read_header(path) for path in paths],
            make_thumbnails(seen) if len(seen) else np.empty((0, 1024), np.float32),
            measure_sharpness(255 * seen.numpy()),
            list(unreadable),
            [] if root is None else find_others(root),
        )

    def names(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> tuple[str, ...]:
        return tuple(self.name_of(self.paths[int(i)]) for i in rows)

    def name_of(self, path: Path) -> str:
        """As it lies below the folder."""
        inside = self.root is not None and path.is_relative_to(self.root)
        return path.relative_to(self.root).as_posix() if inside and self.root else str(path)


def inspect(normal: Folder, pool: Folder | None) -> list[Remark]:
    """All that is odd, the gravest first."""
    folders = [normal] if pool is None else [normal, pool]
    remarks = [remark for folder in folders for remark in inspect_folder(folder)]
    remarks += [*count_remarks(normal, pool), *depth_remarks(folders)]
    if pool is not None:
        remarks += twins_between(normal, pool)
        if len(normal.paths) and len(pool.paths):
            remarks += odd_remarks(pool, normal)
    order: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}
    return sorted(remarks, key=lambda remark: order[remark.severity])


def inspect_folder(folder: Folder) -> list[Remark]:
    remarks, name = [], folder.name
    if folder.skipped:
        kinds = " ".join(sorted({path.suffix.lower() for path in folder.skipped}))
        text = f"{name}: {plural(len(folder.skipped), 'file')} skipped, of kinds that aren't read"
        remarks.append(
            Remark(
                "warning",
                "skipped",
                f"{text} ({kinds})",
                tuple(map(folder.name_of, folder.skipped)),
            )
        )
    if folder.unreadable:
        text = f"{name}: {plural(len(folder.unreadable), 'file')} can't be read"
        files = tuple(f"{folder.name_of(error.path)} ({error.why})" for error in folder.unreadable)
        remarks.append(Remark("warning", "unreadable", text, files))
    remarks += [*shape_remarks(folder), *empty_remarks(folder), *twins_within(folder)]
    return [*remarks, *odd_remarks(folder, folder)] if len(folder.paths) else remarks


def count_remarks(normal: Folder, pool: Folder | None) -> list[Remark]:
    remarks = []
    if len(normal.paths) < FEW_NORMAL:
        text = f"only {plural(len(normal.paths), 'normal image')}: thresholds will be rough"
        remarks.append(Remark("warning", "few", f"{text}, a hundred are better"))
    if pool is not None and len(pool.paths) < FEW_IN_POOL:
        text = f"only {plural(len(pool.paths), 'unlabeled image')}: they say little about anomalies"
        remarks.append(Remark("warning", "few", f"{text}, {FEW_IN_POOL} or more are better"))
    return remarks


def shape_remarks(folder: Folder) -> list[Remark]:
    """Files whose aspect ratio, or whose size, isn't that of most."""
    if not folder.headers:
        return []
    ratios = np.log([header.width / header.height for header in folder.headers])
    odd = np.flatnonzero(np.abs(ratios - np.median(ratios)) > RATIO_STEP)
    if len(odd):
        text = f"{folder.name}: {plural(len(odd), 'image')} of another aspect ratio than most"
        return [Remark("warning", "ratio", text, folder.names(odd))]
    sizes = Counter((header.width, header.height) for header in folder.headers)
    widths = [header.width for header in folder.headers]
    if max(widths) < LEAST_SCALE * min(widths):
        return []
    (usual, n), others = sizes.most_common(1)[0], len(folder.headers)
    text = f"{folder.name}: {len(sizes)} sizes of images, {n} of {others} are {usual[0]}x{usual[1]}"
    return [Remark("note", "size", text)]


def depth_remarks(folders: Sequence[Folder]) -> list[Remark]:
    """Grey of more than 8 bits beside 8 bits: one white level doesn't fit both."""
    deep = {folder.name: sum(h.is_deep for h in folder.headers) for folder in folders}
    n = sum(len(folder.headers) for folder in folders)
    if sum(deep.values()) in (0, n):
        return []
    counts = ", ".join(
        f"{k} of {len(f.headers)} {f.name}" for f, k in zip(folders, deep.values(), strict=True)
    )
    text = f"images of more than 8 bits beside ones of 8 bits ({counts}): use one camera setting"
    return [Remark("error", "depth", text)]


def empty_remarks(folder: Folder) -> list[Remark]:
    empty = np.flatnonzero(folder.thumbnails.std(axis=1) < EMPTY)
    if not len(empty):
        return []
    text = f"{folder.name}: {plural(len(empty), 'image')} of nothing but one grey"
    return [Remark("warning", "empty", text, folder.names(empty))]


def twins_within(folder: Folder) -> list[Remark]:
    if len(folder.paths) < 2:
        return []
    pairs = near_pairs(folder.thumbnails, folder.thumbnails)
    copies = sorted({j for _, j in pairs} - set(np.flatnonzero(is_empty(folder)).tolist()))
    if not copies:
        return []
    text = f"{folder.name}: {plural(len(copies), 'copy')} of other images"
    return [Remark("warning", "twins", text, folder.names(copies))]


def twins_between(normal: Folder, pool: Folder) -> list[Remark]:
    """The same files are an error: an image is either known to be normal or unlabeled."""
    remarks, same = [], duplicates(normal.paths, pool.paths)
    if same:
        text = f"{plural(len(same), 'file')} of unlabeled are in normal, too: remove them from one"
        remarks.append(Remark("error", "same", text, tuple(pool.name_of(x) for _, x in same)))
    if not len(normal.paths) or not len(pool.paths):
        return remarks
    known = {pool.name_of(other) for _, other in same}
    pairs = near_pairs(normal.thumbnails, pool.thumbnails)
    copies = [x for x in pool.names(sorted({j for _, j in pairs})) if x not in known]
    if copies:
        text = f"unlabeled: {plural(len(copies), 'copy')} of normal images"
        remarks.append(Remark("warning", "twins", text, tuple(copies)))
    return remarks


def odd_remarks(folder: Folder, usual: Folder) -> list[Remark]:
    """Images in another light, out of focus, or framed unlike the `usual` folder's; of a pool only
    what differs by far, since anomalies differ, too."""
    if len(usual.paths) < FEWEST_USUAL:
        return []
    seen = ~is_empty(folder)
    remarks = []
    words = {
        "light": "in another light",
        "sharpness": "out of focus, or sharper",
        "framing": "framed in another way, or of something else,",
    }
    of_folder, of_usual = measure(folder, usual), measure(usual, usual)
    for name, text in words.items():
        middle = float(np.median(of_usual[name]))
        spread = 1.4826 * float(np.median(np.abs(of_usual[name] - middle)))
        limit = max(ODD * spread, LEAST_ODD[name])
        odd = np.flatnonzero((np.abs(of_folder[name] - middle) > limit) & seen)
        if len(odd) and (folder is usual or len(odd) > len(folder.paths) / 2):
            than = "most" if folder is usual else "the normal ones"
            about = f"{folder.name}: {plural(len(odd), 'image')} {text} than {than}"
            remarks.append(Remark("warning", name, about, folder.names(odd)))
    return remarks


def measure(folder: Folder, usual: Folder) -> dict[str, Values]:
    """Of each image: mean grey; log sharpness; how little it correlates with the usual image."""
    thumbnails = folder.thumbnails.astype(np.float64)
    middle = np.median(usual.thumbnails, axis=0)
    centred = thumbnails - thumbnails.mean(axis=1, keepdims=True)
    pattern = middle - middle.mean()
    lengths = np.linalg.norm(centred, axis=1) * np.linalg.norm(pattern)
    return {
        "light": thumbnails.mean(axis=1),
        "sharpness": folder.sharpness,
        "framing": 1 - (centred @ pattern) / np.maximum(lengths, 1e-9),
    }


def make_small(images: Tensor) -> Tensor:
    """Float (n, 3, h, h) in [0, 1], at most as large as an inspection looks."""
    floats = images.float() / 255 if images.dtype == torch.uint8 else images.float()
    return F.adaptive_avg_pool2d(floats, LOOKED_AT)


def measure_sharpness(images: npt.NDArray[np.float32]) -> Values:
    """(n,) of (n, 3, h, h): the logarithm of mean slope over contrast."""
    grey = images.astype(np.float64).mean(axis=1)
    slope = sum(np.abs(np.diff(grey, axis=axis)).mean(axis=(1, 2)) for axis in (1, 2))
    sharpness: Values = np.log(slope + 0.5) - np.log(grey.std(axis=(1, 2)) + 0.5)
    return sharpness


def is_empty(folder: Folder) -> npt.NDArray[np.bool_]:
    empty: npt.NDArray[np.bool_] = folder.thumbnails.std(axis=1) < EMPTY
    return empty


def plural(n: int, noun: str) -> str:
    return f"{n} {noun if n == 1 else PLURALS.get(noun, f'{noun}s')}"
