"""How often does a clean pool "show" an anomaly? Normal images alone, divided at random.

Everything that the evidence depends on is run as in a fit: both halves choose among all initial
values and tune. Images are encoded once for each light.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ...augment.light import draw_light, relit
from ...encoders.efficientnet_lite import EfficientNetLite0
from ...encoders.encoding import embed_all, encode
from ...encoders.features import NormalFeatures
from ...images.reading import Reading
from ...images.source import find_images, read_images
from ...methods.evidence import weigh
from ...methods.explain import make_restarts
from ...methods.frozen_restart import TuningData
from ...methods.pretrained import pretrained
from ...methods.problem import FitProblem
from ...settings import PretrainedSettings
from ...version import __version__
from ..testbeds import mvtec
from ..testbeds.light import LIGHTS
from .cell import Cell, Line, Store
from .methods import PRETRAINED

TESTBED = "clean"  # of the result lines
SIZES = ((40, 30), (80, 40), (150, 60))  # normal images, and pool
LIGHT = ("", "20 % darker", "20 % brighter")


@dataclass(frozen=True)
class NormalImages:
    """Of a category, at the tuning size, and the embeddings of all in each light."""

    name: str
    normal: NormalFeatures
    images: torch.Tensor
    lit: dict[str, torch.Tensor]
    encoder: nn.Module

    @staticmethod
    def read(root: Path, name: str) -> "NormalImages":
        folder, size = mvtec.category_folder(root, name), PretrainedSettings().tuning_size
        images = read_images(find_images(folder / "train/good"), Reading(size))[0]
        encoder = EfficientNetLite0().eval().requires_grad_(False)
        noise = draw_light(len(images), torch.Generator().manual_seed(0))
        copies = encode(encoder, images, None, lambda x, rows: relit(x, noise[rows]))
        normal = NormalFeatures(encode(encoder, images), copies, torch.arange(len(images)))
        lit = {light: embed_all(encoder, LIGHTS[light](images)) for light in LIGHT}
        return NormalImages(name, normal, images, lit, encoder)

    def p_value(self, seed: int, n_normal: int, n_pool: int, light: str) -> tuple[float, str]:
        """Of one division, and the augmentation types that its halves chose."""
        order = torch.randperm(len(self.images), generator=torch.Generator().manual_seed(seed))
        train, pool = order[:n_normal].sort().values, order[n_normal : n_normal + n_pool]
        images = self.images[train]
        data = TuningData.of(images, self.normal.among(train), self.lit[light][pool])
        choices = pretrained.choices(None, self.encoder, None, None)
        problem = FitProblem(images, self.images[pool], choices, seed)
        found = weigh(make_restarts(problem, self.encoder, data), data, 0.0, seed, 1, None)
        return found.p_value, " ".join(found.tested)


def run_clean(category: str, root: Path, n_pools: int, store: Store) -> Iterator[Line]:
    """Pools of every size and light in turn, until there are so many of this category."""
    done = {line.cell.key for line in store.lines(TESTBED)}
    images: NormalImages | None = None
    for seed in range(n_pools):
        n_normal, n_pool = SIZES[seed % len(SIZES)]
        light = LIGHT[(seed // len(SIZES)) % len(LIGHT)]
        changes = {"light": light} if light else {}
        task = f"{category}/{n_normal} normal, {n_pool} in the pool"
        cell = Cell(TESTBED, task, PRETRAINED, seed, "transductive", "imagenet", 0.0, changes)
        if cell.key in done:
            continue
        images = images or NormalImages.read(root, category)
        p_value, tested = images.p_value(seed, n_normal, n_pool, light)
        line = Line(
            cell,
            0.5,
            0.0,
            {"tested": tested},
            __version__,
            n_normal,
            n_pool,
            n_pool,
            details={"p": p_value},
        )
        store.append([line])
        yield line
