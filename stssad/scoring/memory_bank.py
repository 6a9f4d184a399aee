"""The memory bank: patches of normal images, and the distance of others to the nearest of them.

Patches are those of the encoder's finest map; each is described by the first two maps, averaged
over its 3x3 neighbours, as in PatchCore (Roth et al., 2022). Ours are whitened first
(docs/beyond-the-paper.md): a direction in which normal patches hardly differ counts for more.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ..features import Features
from ..layout import canonical
from ..threads import each
from .part import PartScores

N_MAPS = 2  # of the encoder's, the finest first
PROJECTED = 64  # dimensions in which the coreset is chosen
COMPARED = 4096  # patches compared at a time
SCORED = 16  # images scored at a time in a fit
MOST_PATCHES = 60_000  # from which the coreset is chosen
SHRINKAGE = 0.1  # of the patches' covariance towards its mean variance
TOP = 3  # patches that decide an image's score


def patch_embeddings(maps: list[Tensor]) -> Tensor:
    """(n, d, h, w): the first maps, averaged over 3x3 patches, in the size of the first."""
    averaged = [F.avg_pool2d(m, 3, 1, 1) for m in maps[:N_MAPS]]
    size = averaged[0].shape[-2:]
    upsampled = [
        F.interpolate(m, size=size, mode="bilinear", align_corners=False) for m in averaged[1:]
    ]
    return torch.cat([averaged[0], *upsampled], dim=1)


def as_rows(patches: Tensor) -> Tensor:
    """(n, d, h, w) to (n*h*w, d)."""
    return patches.permute(0, 2, 3, 1).reshape(-1, patches.shape[1])


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


def patch_whitening(rows: Tensor) -> Tensor:
    """(d, d) to multiply rows by: patches then differ alike in all directions, or nearly so.

    The covariance is mixed with its mean variance: directions in which normal patches don't differ
    at all would otherwise count without bound.
    """
    values, vectors = torch.linalg.eigh(torch.cov(rows.T.double()))
    mean = values.mean().clamp_min(1e-12)
    mixed = (1 - SHRINKAGE) * values.clamp_min(0) + SHRINKAGE * mean
    return canonical((vectors / mixed.sqrt()).to(rows.dtype))


def highest(distances: Tensor) -> Tensor:
    """(n,) of maps (n, h, w): the mean of each image's highest-scoring patches."""
    top = distances.flatten(1).topk(min(TOP, distances[0].numel())).values
    return top.mean(dim=1).double()


class MemoryBank(nn.Module):
    """The patch part: a score of the highest-scoring patches (whitened), and an anomaly map.

    The map is of the patches as they are: whitening tells images apart better, but spreads a
    defect over the patches around it.
    """

    def __init__(self, size: int = 1500) -> None:
        super().__init__()
        self.size = size  # patches that are kept
        self.bank: Tensor
        self.whitening: Tensor
        self.register_buffer("bank", torch.empty(0))
        self.register_buffer("whitening", torch.empty(0))

    def config(self) -> dict[str, Any]:
        return {"size": self.size}

    def fit(self, normal: Features, fold: Tensor, seed: int) -> PartScores:
        rows, images = some_patches(normal)
        generator = torch.Generator().manual_seed(seed)
        kept = coreset(rows @ patch_whitening(rows), self.size, generator)
        scores = torch.empty(len(normal), dtype=torch.float64)
        maps = torch.empty(len(normal), *normal.maps[0].shape[2:], dtype=rows.dtype)
        for k in range(int(fold.max()) + 1):
            # The whitening mustn't have seen the fold either: fitted to an image's own patches, it
            # makes them look far more usual than a new image's.
            seen = fold[images] != k
            self._hold(rows[kept[seen[kept]]], patch_whitening(rows[seen]))
            of_fold = (fold == k).nonzero()[:, 0]
            for index, found in each(torch.split(of_fold, SCORED), lambda i: (i, self(normal[i]))):
                scores[index], maps[index] = found.scores.cpu(), found.maps.cpu()
        self._hold(rows[kept], patch_whitening(rows))
        return PartScores(scores, maps)

    def _hold(self, bank: Tensor, whitening: Tensor) -> None:
        device = self.bank.device
        self.bank, self.whitening = canonical(bank).to(device), canonical(whitening).to(device)

    def forward(self, features: Features) -> PartScores:
        patches = patch_embeddings([m.to(self.bank.device) for m in features.maps[:N_MAPS]])
        rows, shape = as_rows(patches), (len(patches), *patches.shape[2:])
        whitened = nearest_distances(rows @ self.whitening, self.bank @ self.whitening)
        distances = nearest_distances(rows, self.bank)
        return PartScores(highest(whitened.reshape(shape)), distances.reshape(shape))


def some_patches(normal: Features) -> tuple[Tensor, Tensor]:
    """Patches of normal images (k, d), of many images only some each, and whose each is (k,)."""
    most = max(1, MOST_PATCHES // len(normal))

    def work(some: Features) -> Tensor:
        patches = patch_embeddings(some.maps)
        rows = as_rows(patches).reshape(len(some), -1, patches.shape[1])
        return rows[:, spread(rows.shape[1], most)].flatten(0, 1)

    rows = torch.cat(list(each(normal.chunks(SCORED), work)))
    images = torch.arange(len(normal)).repeat_interleave(len(rows) // len(normal))
    return rows, images


def spread(n: int, most: int) -> Tensor:
    """At most so many of n patches, evenly spread."""
    return torch.arange(n) if most >= n else (torch.arange(most) * n) // most
