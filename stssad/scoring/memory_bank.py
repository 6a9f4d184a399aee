"""The memory bank: patches of normal images, and the distance of others to the nearest of them.

As in PatchCore (Roth et al., 2022), with two differences (docs/beyond-the-paper.md): directions in
which light moves patches are left out, and several of an image's patches decide its score.
"""

from typing import Any

import torch
from torch import Generator, Tensor, nn

from ..encoders.features import Features, NormalFeatures
from ..encoders.patches import as_rows
from ..parallel.threads import each
from ..storage.layout import canonical
from .folds import PartScores
from .nuisance import leading_directions, without

PROJECTED = 64  # dimensions in which the coreset is chosen
COMPARED = 4096  # patches compared at a time
SCORED = 16  # images scored at a time in a fit
MOST_PATCHES = 60_000  # from which the coreset is chosen
FAR = 64  # patches of an image that are looked at when a fold is left out
LIGHT_STRIDE = 4  # of the patches along which light is looked at, one in so many each way


def coreset(rows: Tensor, size: int, generator: Generator) -> Tensor:
    """Which rows to choose: each next one is the furthest from those chosen (greedy k-centre)."""
    if size >= len(rows):
        return torch.arange(len(rows))
    projection = torch.randn(rows.shape[1], PROJECTED, generator=generator) / PROJECTED**0.5
    small = rows @ projection if rows.shape[1] > PROJECTED else rows
    squares = small.square().sum(1)
    chosen = [int(torch.randint(len(rows), (), generator=generator))]
    nearest = torch.full((len(rows),), float("inf"))
    while len(chosen) < size:
        k = chosen[-1]
        distance = squares + squares[k] - 2 * (small @ small[k])
        nearest = torch.minimum(nearest, distance)
        chosen.append(int(nearest.argmax()))
    return torch.tensor(chosen)


def coreset_by_fold(rows: Tensor, fold: Tensor, size: int, generator: Generator) -> Tensor:
    """Which rows to choose: of each fold, whose number is (n,), its own coreset.

    The choice from one fold doesn't depend on the others, so that leaving a fold out gives just the
    bank that would have been built without it. A coreset of all rows would have holes then: it
    holds no patch that resembles another one in it.
    """
    n_folds, chosen = int(fold.max()) + 1, []
    for k in range(n_folds):
        of_fold = (fold == k).nonzero()[:, 0]
        n = size * (k + 1) // n_folds - size * k // n_folds
        chosen.append(of_fold[coreset(rows[of_fold], n, generator)])
    return torch.cat(chosen)


def nearest_distances(rows: Tensor, bank: Tensor) -> Tensor:
    """(n,): from each row to the nearest of the bank's.

    Which is nearest is found by |y|² - 2xy; its distance is then computed from the difference,
    since the expansion cancels where the two are close.
    """
    nearest = (bank.square().sum(1) - 2 * rows @ bank.T).argmin(dim=1)
    return (rows - bank[nearest]).square().sum(dim=1).sqrt()


def all_nearest_distances(rows: Tensor, bank: Tensor) -> Tensor:
    """The same for any number of rows, a chunk at a time."""
    return torch.cat([nearest_distances(chunk, bank) for chunk in torch.split(rows, COMPARED)])


def patch_distances(patches: Tensor, bank: Tensor) -> Tensor:
    """(n, h, w) of patches (n, d, h, w): each one's distance to the nearest in the bank."""
    return all_nearest_distances(as_rows(patches), bank).reshape(-1, *patches.shape[2:])


def highest(distances: Tensor, n_highest: int) -> Tensor:
    """(n,) of maps (n, h, w): the mean of each image's highest-scoring patches."""
    top = distances.flatten(1).topk(min(n_highest, distances[0].numel())).values
    return top.mean(dim=1).double()


class MemoryBank(nn.Module):
    """The patch part: a score of the highest-scoring patches, and an anomaly map."""

    def __init__(self, size: int = 10_000, n_highest: int = 3, n_nuisance: int = 3) -> None:
        """size: number of patches in the bank; n_highest: patches that decide an image's score;
        n_nuisance: directions of light that are left out of patches."""
        super().__init__()
        self.size, self.n_highest, self.n_nuisance = size, n_highest, n_nuisance
        self.bank: Tensor
        self.nuisance: Tensor
        self.register_buffer("bank", torch.empty(0))
        self.register_buffer("nuisance", torch.empty(0))
        self._n_of_fold: list[int] = []  # patches in the bank, of each fold of the last fit

    def config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("size", "n_highest", "n_nuisance")}

    def fit(self, normal: NormalFeatures, fold: Tensor, seed: int) -> PartScores:
        """Learn normal images, and score each as if its fold had not been seen."""
        features, device = normal.features, self.bank.device
        assert features.patches is not None
        self.nuisance = canonical(light_directions(normal, self.n_nuisance)).to(device)
        rows, images = sample_patches(features)
        rows = without(rows, self.nuisance.cpu())
        chosen = coreset_by_fold(rows, fold[images], self.size, torch.Generator().manual_seed(seed))
        scores = torch.empty(len(normal), dtype=torch.float64)
        maps = torch.empty(len(normal), *features.patches.shape[2:], dtype=rows.dtype)
        for k in range(int(fold.max()) + 1):
            self.bank = canonical(rows[chosen[fold[images[chosen]] != k]]).to(device)
            of_fold = (fold == k).nonzero()[:, 0]
            chunks = torch.split(of_fold, SCORED)
            for index, distances in each(chunks, lambda i: (i, self(features[i]))):
                scores[index] = highest(distances, self.n_highest).cpu()
                maps[index] = distances.cpu()
        self.bank = canonical(rows[chosen]).to(device)
        self._n_of_fold = torch.bincount(fold[images[chosen]]).tolist()
        return PartScores(scores, maps)

    def left_out(self, features: Features, maps: Tensor | None = None) -> Tensor:
        """(n, k): scores by the bank without each fold of the normal images, right after a fit;
        `maps`: distances (n, h, w) from the whole bank, if they are known.

        Only patches that are far from the whole bank are looked at: the others can be among the
        highest only where one fold alone resembles them.
        """
        index = torch.split(torch.arange(len(features)), SCORED)

        def work(rows: Tensor) -> Tensor:
            chunk = features[rows]
            return self._left_out(chunk, self(chunk) if maps is None else maps[rows])

        return torch.cat(list(each(index, work)))

    def _left_out(self, features: Features, maps: Tensor) -> Tensor:
        assert features.patches is not None
        far = maps.flatten(1).topk(min(FAR, maps[0].numel())).indices.to(self.bank.device)
        patches = as_rows(features.patches.to(self.bank.device))
        first = torch.arange(len(far), device=far.device)[:, None] * maps[0].numel()
        rows = without(patches[(first + far).flatten()], self.nuisance)
        folds = torch.split(self.bank, self._n_of_fold)
        nearest = [nearest_distances(rows, of_fold).reshape(*far.shape, 1) for of_fold in folds]
        scores = []
        for k in range(len(nearest)):
            others = torch.stack(nearest[:k] + nearest[k + 1 :]).amin(dim=0)
            scores.append(highest(others, self.n_highest))
        return torch.stack(scores, dim=1).cpu()

    def forward(self, features: Features) -> Tensor:
        """(n, h, w): of each patch the distance to the nearest normal one."""
        if features.patches is None:
            raise ValueError("a memory bank needs an encoder with feature maps")
        patches = features.patches.to(self.bank.device)
        rows = without(as_rows(patches), self.nuisance)
        return nearest_distances(rows, self.bank).reshape(-1, *patches.shape[2:])


def light_directions(normal: NormalFeatures, n_directions: int) -> Tensor:
    """(k, d): how light moves patches most."""
    relit, original = normal.relit.patches, normal.features.patches
    assert relit is not None and original is not None
    sparse = (..., slice(None, None, LIGHT_STRIDE), slice(None, None, LIGHT_STRIDE))
    changes = as_rows(relit[sparse]) - as_rows(original[sparse][normal.source])
    return leading_directions(changes, n_directions)


def sample_patches(features: Features) -> tuple[Tensor, Tensor]:
    """Patches of normal images (k, d), fewer of each of many images, and whose each is (k,)."""
    most = max(1, MOST_PATCHES // len(features))

    def work(chunk: Features) -> Tensor:
        assert chunk.patches is not None
        rows = as_rows(chunk.patches).reshape(len(chunk), -1, chunk.patches.shape[1])
        return rows[:, spread(rows.shape[1], most)].flatten(0, 1)

    rows = torch.cat(list(each(features.chunks(SCORED), work)))
    images = torch.arange(len(features)).repeat_interleave(len(rows) // len(features))
    return rows, images


def spread(n: int, most: int) -> Tensor:
    """At most so many of n patches, evenly spread."""
    return torch.arange(n) if most >= n else (torch.arange(most) * n) // most
