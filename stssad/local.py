"""Embeddings of places instead of whole pictures, and the distance to the nearest normal one.

Places are those of the encoder's finest pooled map; each is described by its first two maps,
averaged over its 3x3 neighbours, as in PatchCore (Roth et al., 2022).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .detector import EMBEDDING_CHUNK, Network, as_floats
from .threads import in_order, workers

N_MAPS = 2  # of the encoder's, the finest first
PROJECTED = 64  # dimensions in which the coreset is chosen
CHUNK = 4096  # places compared at a time


def place_embeddings(network: Network, images: Tensor, device: torch.device) -> Tensor:
    """(n, d, h, w) of any number of pictures, uint8 or float, on the CPU."""

    @torch.no_grad()
    def of_chunk(chunk: Tensor) -> Tensor:
        pictures = (as_floats(chunk, device) - network.mean) / network.std
        return joined(network.encoder.feature_maps(pictures)[:N_MAPS]).cpu()  # type: ignore[operator]

    chunks = torch.split(images, EMBEDDING_CHUNK)
    with workers() as pool:
        return torch.cat(list(in_order(pool, of_chunk, chunks, len(chunks))))


def joined(maps: list[Tensor]) -> Tensor:
    """Maps averaged over 3x3 places and brought to the size of the first."""
    averaged = [F.avg_pool2d(m, 3, 1, 1) for m in maps]
    size = averaged[0].shape[-2:]
    upsampled = [
        F.interpolate(m, size=size, mode="bilinear", align_corners=False) for m in averaged[1:]
    ]
    return torch.cat([averaged[0], *upsampled], dim=1)


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


@dataclass(frozen=True)
class PatchMemory:
    """Embeddings of normal places, and how far others are from the nearest of them."""

    bank: Tensor  # (k, d)

    @staticmethod
    def of(maps: Tensor, share: float, generator: Generator) -> "PatchMemory":
        rows = as_rows(maps)
        kept = coreset(rows, max(1, round(share * len(rows))), generator)
        return PatchMemory(rows[kept].contiguous())

    def distances(self, maps: Tensor) -> Tensor:
        """(n, h, w): each place's distance to the nearest normal one."""
        n, _, h, w = maps.shape
        squares = self.bank.square().sum(1)
        found = []
        for rows in torch.split(as_rows(maps), CHUNK):
            squared = rows.square().sum(1)[:, None] + squares - 2 * rows @ self.bank.T
            found.append(squared.min(dim=1).values.clamp_min(0).sqrt())
        return torch.cat(found).reshape(n, h, w)
