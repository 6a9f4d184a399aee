"""Where is the defect? Pixel AUROC against MVTec AD's masks, all defects of a category together."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...images.decode import read_mask
from ...images.reading import Reading
from ...images.source import find_images, read_images
from ...model import STSSAD
from ...parallel.threads import torch_threads
from ...scoring.anomaly_map import upsampled
from ...settings import PretrainedSettings
from ...version import __version__
from ..baselines.patchcore import PatchCore
from ..testbeds import mvtec
from .cell import Cell, Line, Store
from .methods import PRETRAINED

TESTBED = "pixels"  # of the result lines


def masked_images(root: Path, category: str, reading: Reading) -> tuple[Tensor, Tensor]:
    """All test images (n, 3, m, m) and their masks (n, m, m), 1 where there is a defect."""
    folder = mvtec.category_folder(root, category)
    paths = find_images(folder / "test")
    masks = [mask_of(folder, path, reading.image_size) for path in paths]
    return read_images(paths, reading)[0], torch.from_numpy(np.stack(masks))


def mask_of(folder: Path, image: Path, size: int) -> npt.NDArray[np.bool_]:
    defect = image.parent.name
    if defect == "good":
        return np.zeros((size, size), dtype=bool)
    path = folder / "ground_truth" / defect / f"{image.stem}_mask.png"
    if not path.is_file():
        raise FileNotFoundError(f"no mask {str(path)!r}; unpack the category again")
    return read_mask(path, size)


def pixel_auc(maps: Tensor, masks: Tensor) -> float:
    from sklearn.metrics import roc_auc_score

    grown = upsampled(maps, masks.shape[-1])
    return float(roc_auc_score(masks.flatten().numpy(), grown.flatten().numpy()))


def aupro(maps: Tensor, masks: Tensor, limit: float = 0.3) -> float:
    """Area under the per-region overlap (Bergmann et al., 2021), to a false positive rate `limit`.

    At each threshold, the share of every defect's region that lies above it, averaged over
    regions, against the share of normal pixels above it. From 0 to 1. Pixels that touch at a corner
    are of one region, as in MVTec's evaluation code.
    """
    from scipy.integrate import trapezoid  # numpy has it by this name only from 2.0
    from scipy.ndimage import label

    grown = upsampled(maps, masks.shape[-1]).numpy().astype(np.float32)
    regions = [label(mask, structure=np.ones((3, 3)))[0] for mask in masks.numpy()]
    normal = np.sort(grown[~masks.numpy()])
    rates = np.linspace(0, limit, 301)
    thresholds = np.quantile(normal, 1 - rates)
    overlaps = [
        1
        - np.searchsorted(np.sort(each[region == k]), thresholds, side="right")
        / (region == k).sum()
        for each, region in zip(grown, regions, strict=True)
        for k in range(1, region.max() + 1)
    ]
    return float(trapezoid(np.mean(overlaps, axis=0), rates) / limit)


def ours(train: Tensor, images: Tensor, seed: int) -> Tensor:
    model = STSSAD(seed=seed, explain=False).fit(train, images)
    assert model.workings_.pool_maps is not None
    return model.workings_.pool_maps


def patchcore(train: Tensor, images: Tensor, seed: int) -> Tensor:
    return PatchCore(seed=seed).fit(train).anomaly_maps(images)


MAPS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "PatchCore": patchcore,
    PRETRAINED: ours,
}


def run_pixels(category: str, root: Path, seeds: int, store: Store) -> Iterator[Line]:
    """Both maps of a category, of all its test images; they are the pool, unlabeled, as well.

    Our maps don't depend on the pool, nor on what was tuned to it.
    """
    done = {line.cell.key for line in store.lines(TESTBED)}
    reading = PretrainedSettings().reading
    folder = mvtec.category_folder(root, category)
    train = read_images(find_images(folder / "train/good"), reading)[0]
    images, masks = masked_images(root, category, reading)
    for seed in range(seeds):
        for name, maps in MAPS.items():
            cell = Cell(TESTBED, category, name, seed, "transductive", "imagenet")
            if cell.key in done:
                continue
            began = time.perf_counter()
            with torch_threads(1):
                found = maps(train, images, seed)
            seconds = round(time.perf_counter() - began, 1)
            counts = (len(train), len(images), len(images))
            details = {"aupro": round(aupro(found, masks), 4)}
            auc = pixel_auc(found, masks)
            line = Line(cell, auc, seconds, {}, __version__, *counts, details=details)
            store.append([line])
            yield line
