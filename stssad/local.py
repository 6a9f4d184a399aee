"""Embeddings of places instead of whole pictures, and the distance to the nearest normal one.

Places are those of the encoder's finest pooled map; each is described by its first two maps,
averaged over its 3x3 neighbours, as in PatchCore (Roth et al., 2022). Ours are whitened first
(docs/beyond-the-paper.md): a direction in which normal places hardly differ counts for more.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .detector import FrozenEncoder, in_chunks
from .filters import gaussian_blur
from .layout import canonical
from .threads import in_order, workers

T = TypeVar("T")
N_MAPS = 2  # of the encoder's, the finest first
PROJECTED = 64  # dimensions in which the coreset is chosen
CHUNK = 4096  # places compared at a time
MOST_PLACES = 60_000  # from which the coreset is chosen
BANK = 1500  # places that are kept
SHRINKAGE = 0.1  # of the places' covariance towards its mean variance
SMOOTHING = 1 / 64  # of the picture's side: standard deviation in heatmaps
TOP = 3  # places that decide a picture's score


def place_embeddings(encoder: FrozenEncoder, images: Tensor) -> Tensor:
    """(n, d, h, w) of any number of pictures, uint8 or float, on the CPU."""
    return torch.cat(list(each_chunk(images, lambda chunk: joined(encoder.maps_chunk(chunk)))))


def each_chunk(images: Tensor, work: Callable[[Tensor], T]) -> Iterator[T]:
    """The result of `work` for a few pictures at a time, in order."""
    chunks = in_chunks(images)
    with workers() as pool:
        yield from in_order(pool, work, chunks, 2 * torch.get_num_threads())


def joined(maps: list[Tensor]) -> Tensor:
    """The first maps, averaged over 3x3 places, in the size of the first; on the CPU."""
    averaged = [F.avg_pool2d(m, 3, 1, 1) for m in maps[:N_MAPS]]
    size = averaged[0].shape[-2:]
    upsampled = [
        F.interpolate(m, size=size, mode="bilinear", align_corners=False) for m in averaged[1:]
    ]
    return torch.cat([averaged[0], *upsampled], dim=1).cpu()


def as_rows(maps: Tensor) -> Tensor:
    """(n, d, h, w) to (n*h*w, d)."""
    return maps.permute(0, 2, 3, 1).reshape(-1, maps.shape[1])


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
    for some in torch.split(rows, CHUNK):
        nearest = (squares - 2 * some @ bank.T).argmin(dim=1)
        found.append(torch.linalg.vector_norm(some - bank[nearest], dim=1))
    return torch.cat(found)


def whitening(rows: Tensor) -> Tensor:
    """(d, d) to multiply rows by: places then differ alike in all directions, or nearly so.

    The covariance is mixed with its mean variance: directions in which normal places don't differ
    at all would otherwise count without bound.
    """
    values, vectors = torch.linalg.eigh(torch.cov(rows.T.double()))
    mean = values.mean().clamp_min(1e-12)
    mixed = (1 - SHRINKAGE) * values.clamp_min(0) + SHRINKAGE * mean
    matrix: Tensor = (vectors / mixed.sqrt()).to(rows.dtype)
    return matrix


@dataclass(frozen=True)
class PlaceMemory:
    """Normal places, and how far others are from the nearest of them."""

    bank: Tensor  # (k, d)

    def distances(self, maps: Tensor, transform: Tensor | None = None) -> Tensor:
        """(n, h, w): each place's distance to the nearest normal one; whitened, if so wished."""
        rows, bank = as_rows(maps), self.bank
        if transform is not None:
            rows, bank = rows @ transform, bank @ transform
        return nearest_distances(rows, bank).reshape(len(maps), *maps.shape[2:])


@dataclass(frozen=True)
class WhitenedMemory:
    """The same normal places, for a score (whitened) and for a map (as they are).

    Whitening tells pictures apart better, but spreads a defect over the places around it.
    """

    memory: PlaceMemory
    transform: Tensor  # (d, d)

    def __call__(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) scores of pictures, and (n, h, w) distances for their maps."""
        return place_score(self.memory.distances(maps, self.transform)), self.memory.distances(maps)


@dataclass(frozen=True)
class NormalPlaces:
    """Places of normal pictures, the fold of the picture each is of, and which make the coreset."""

    rows: Tensor  # (n, d)
    fold: Tensor  # (n,)
    kept: Tensor

    @staticmethod
    def of(
        encoder: FrozenEncoder, train: Tensor, fold: Tensor, generator: Generator
    ) -> "NormalPlaces":
        """Of normal pictures, each in a fold; of many pictures only some places each."""
        each = max(1, MOST_PLACES // len(train))

        def some_rows(chunk: Tensor) -> Tensor:
            maps = joined(encoder.maps_chunk(chunk))
            rows = as_rows(maps).reshape(len(chunk), -1, maps.shape[1])
            return rows[:, spread(rows.shape[1], each)].flatten(0, 1)

        rows = torch.cat(list(each_chunk(train, some_rows)))
        kept = coreset(rows @ whitening(rows), BANK, generator)
        return NormalPlaces(rows, fold.repeat_interleave(len(rows) // len(train)), kept)

    def memory(self, without_fold: int | None = None) -> WhitenedMemory:
        """What there is to compare with; without a fold, as if its pictures had not been seen.

        That goes for the whitening too: fitted to a picture's own places, it makes them look far
        more usual than a new picture's.
        """
        seen = torch.ones_like(self.fold, dtype=torch.bool)
        if without_fold is not None:
            seen = self.fold != without_fold
        bank = self.rows[self.kept[seen[self.kept]]]
        return WhitenedMemory(PlaceMemory(bank), canonical(whitening(self.rows[seen])))


def spread(n: int, most: int) -> Tensor:
    """At most so many of n places, evenly spread."""
    return torch.arange(n) if most >= n else (torch.arange(most) * n) // most


def upsampled(places: Tensor, size: int) -> Tensor:
    """Maps (n, h, w) in the size of the picture, smooth."""
    grown = F.interpolate(places[:, None], size=(size, size), mode="bilinear", align_corners=False)
    return gaussian_blur(grown, SMOOTHING * size)[:, 0]


def place_score(distances: Tensor) -> Tensor:
    """(n,) of maps (n, h, w): the mean of each picture's furthest places."""
    furthest = distances.flatten(1).topk(min(TOP, distances[0].numel())).values
    return furthest.mean(dim=1).double()


def cross_fitted_places(
    normal: NormalPlaces, encoder: FrozenEncoder, train: Tensor, fold: Tensor
) -> tuple[Tensor, Tensor]:
    """Normal pictures' scores (n,) and maps (n, h, w), each from normal places of other folds."""
    order, scores, maps = [], [], []
    for k in range(int(fold.max()) + 1):
        of_fold, memory = (fold == k).nonzero()[:, 0], normal.memory(without_fold=k)

        def work(chunk: Tensor, memory: WhitenedMemory = memory) -> tuple[Tensor, Tensor]:
            return memory(joined(encoder.maps_chunk(chunk)))

        order.append(of_fold)
        for of_chunk in each_chunk(train[of_fold], work):
            scores.append(of_chunk[0])
            maps.append(of_chunk[1])
    back = torch.cat(order).argsort()
    return torch.cat(scores)[back], torch.cat(maps)[back]
