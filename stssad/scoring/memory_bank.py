"""The memory bank: patches of normal images, and the distance of others to the nearest of them.

As in PatchCore (Roth et al., 2022), with two differences (docs/beyond-the-paper.md): directions in
which light moves patches are left out, and several of an image's patches decide its score.
"""

from typing import Any

import torch
from torch import Generator, Tensor, nn

from ..encoders.patches import as_rows
from ..features import Features, NormalFeatures
from ..layout import canonical
from ..threads import each
from .nuisance import leading_directions, without
from .part import PartScores

PROJECTED = 64  # dimensions in which the coreset is chosen
COMPARED = 4096  # patches compared at a time
SCORED = 16  # images scored at a time in a fit
MOST_PATCHES = 60_000  # from which the coreset is chosen
LIGHT_STRIDE = 4  # of the patches along which light is looked at, one in so many each way


def coreset(rows: Tensor, n_kept: int, generator: Generator) -> Tensor:
    """Which rows to keep: each next one is the furthest from those kept (greedy k-centre)."""
    if n_kept >= len(rows):
        return torch.arange(len(rows))
    projection = torch.randn(rows.shape[1], PROJECTED, generator=generator) / PROJECTED**0.5
    small = rows @ projection if rows.shape[1] > PROJECTED else rows
    squares = small.square().sum(1)
    kept = [int(torch.randint(len(rows), (), generator=generator))]
    nearest = torch.full((len(rows),), float("inf"))
    while len(kept) < n_kept:
        k = kept[-1]
        distance = squares + squares[k] - 2 * (small @ small[k])
        nearest = torch.minimum(nearest, distance)
        kept.append(int(nearest.argmax()))
    return torch.tensor(kept)


def coreset_by_fold(rows: Tensor, fold: Tensor, n_kept: int, generator: Generator) -> Tensor:
    """Which rows to keep: of each fold, whose number is (n,), its own coreset.

    What is kept of the others doesn't depend on a fold, so that leaving it out gives just the bank
    that would have been built without it. From a coreset of all rows, leaving out a fold would
    leave holes: it holds no patch that resembles another one in it.
    """
    n_folds, found = int(fold.max()) + 1, []
    for k in range(n_folds):
        of_fold = (fold == k).nonzero()[:, 0]
        n = n_kept * (k + 1) // n_folds - n_kept * k // n_folds
        found.append(of_fold[coreset(rows[of_fold], n, generator)])
    return torch.cat(found)


def nearest_distances(rows: Tensor, bank: Tensor) -> Tensor:
    """(n,): from each row to the nearest of the bank's.

    Which is nearest is found by |y|² - 2xy; its distance is then computed from the difference,
    since the expansion cancels where the two are close.
    """
    squares, found = bank.square().sum(1), []
    for some in torch.split(rows, COMPARED):
        nearest = (squares - 2 * some @ bank.T).argmin(dim=1)
        found.append(torch.linalg.vector_norm(some - bank[nearest], dim=1))
    return torch.cat(found)


def patch_distances(patches: Tensor, bank: Tensor) -> Tensor:
    """(n, h, w) of patches (n, d, h, w): each one's distance to the nearest in the bank."""
    return nearest_distances(as_rows(patches), bank).reshape(len(patches), *patches.shape[2:])


def highest(distances: Tensor, n_highest: int) -> Tensor:
    """(n,) of maps (n, h, w): the mean of each image's highest-scoring patches."""
    top = distances.flatten(1).topk(min(n_highest, distances[0].numel())).values
    return top.mean(dim=1).double()


class MemoryBank(nn.Module):
    """The patch part: a score of the highest-scoring patches, and an anomaly map."""

    def __init__(
        self, size: int = 10_000, n_highest: int = 3, n_nuisance: int = 3, of_small: bool = False
    ) -> None:
        """size: patches that are kept; n_highest: patches that decide an image's score;
        n_nuisance: directions of light that are left out of patches; of_small: whether it looks at
        the images' smaller form, where a patch covers more of the object."""
        super().__init__()
        self.size, self.n_highest, self.n_nuisance = size, n_highest, n_nuisance
        self.of_small = of_small
        self.bank: Tensor
        self.nuisance: Tensor
        self.register_buffer("bank", torch.empty(0))
        self.register_buffer("nuisance", torch.empty(0))

    def config(self) -> dict[str, Any]:
        names = ("size", "n_highest", "n_nuisance", "of_small")
        return {name: getattr(self, name) for name in names}

    def fit(self, normal: NormalFeatures, fold: Tensor, seed: int) -> PartScores:
        normal = normal.small if self.of_small else normal
        features, device = normal.features, self.bank.device
        assert features.patches is not None
        self.nuisance = canonical(light_directions(normal, self.n_nuisance)).to(device)
        rows, images = some_patches(features)
        rows = without(rows, self.nuisance.cpu())
        kept = coreset_by_fold(rows, fold[images], self.size, torch.Generator().manual_seed(seed))
        scores = torch.empty(len(normal), dtype=torch.float64)
        maps = torch.empty(len(normal), *features.patches.shape[2:], dtype=rows.dtype)
        for k in range(int(fold.max()) + 1):
            self.bank = canonical(rows[kept[fold[images[kept]] != k]]).to(device)
            of_fold = (fold == k).nonzero()[:, 0]
            chunks = torch.split(of_fold, SCORED)
            for index, found in each(chunks, lambda i: (i, self.distances(features[i]))):
                scores[index], maps[index] = highest(found, self.n_highest).cpu(), found.cpu()
        self.bank = canonical(rows[kept]).to(device)
        return PartScores(scores, maps)

    def forward(self, features: Features) -> PartScores:
        chosen = features.small if self.of_small else features
        if chosen is None:
            raise ValueError("this memory bank looks at smaller images, and there are none")
        distances = self.distances(chosen)
        return PartScores(highest(distances, self.n_highest), distances)

    def distances(self, features: Features) -> Tensor:
        """(n, h, w): of each patch to the nearest normal one."""
        if features.patches is None:
            raise ValueError("a memory bank needs an encoder with feature maps")
        patches = features.patches.to(self.bank.device)
        rows = without(as_rows(patches), self.nuisance)
        return nearest_distances(rows, self.bank).reshape(len(patches), *patches.shape[2:])


def light_directions(normal: NormalFeatures, n_directions: int) -> Tensor:
    """(k, d): how light moves patches most."""
    relit, original = normal.relit.patches, normal.features.patches
    assert relit is not None and original is not None
    some = (..., slice(None, None, LIGHT_STRIDE), slice(None, None, LIGHT_STRIDE))
    changes = as_rows(relit[some]) - as_rows(original[some][normal.source])
    return leading_directions(changes, n_directions)


def some_patches(features: Features) -> tuple[Tensor, Tensor]:
    """Patches of normal images (k, d), of many images only some each, and whose each is (k,)."""
    most = max(1, MOST_PATCHES // len(features))

    def work(some: Features) -> Tensor:
        assert some.patches is not None
        rows = as_rows(some.patches).reshape(len(some), -1, some.patches.shape[1])
        return rows[:, spread(rows.shape[1], most)].flatten(0, 1)

    rows = torch.cat(list(each(features.chunks(SCORED), work)))
    images = torch.arange(len(features)).repeat_interleave(len(rows) // len(features))
    return rows, images


def spread(n: int, most: int) -> Tensor:
    """At most so many of n patches, evenly spread."""
    return torch.arange(n) if most >= n else (torch.arange(most) * n) // most
