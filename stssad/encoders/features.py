"""What an encoder makes of images: an embedding of each, and descriptors of its patches."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..storage.layout import canonical


@dataclass(frozen=True)
class Features:
    """`pooled`: embeddings (n, d); `patches`: (n, c, h, w), None where the encoder has no maps;
    `small`: the same of the images at a smaller size, if they are looked at twice."""

    pooled: Tensor
    patches: Tensor | None = None
    small: "Features | None" = None

    def __len__(self) -> int:
        return len(self.pooled)

    @property
    def is_spatial(self) -> bool:
        """Whether they also tell what is where."""
        return self.patches is not None

    def in_small(self) -> "Features":
        """Of the images at the smaller size."""
        if self.small is None:
            raise ValueError("these images were encoded at one size, and two are needed")
        return self.small

    def __getitem__(self, index: Tensor | slice) -> "Features":
        """Some images' features, copied: they compute as if they had just been encoded."""
        patches = None if self.patches is None else canonical(self.patches[index])
        small = None if self.small is None else self.small[index]
        return Features(canonical(self.pooled[index]), patches, small)

    def chunks(self, size: int) -> Iterator["Features"]:
        for start in range(0, len(self), size):
            yield self[start : start + size]


@dataclass(frozen=True)
class NormalFeatures:
    """Of normal images, and of some of them again in other light (`augment.light`).

    `source` (k,): which of the images each relit one is a copy of.
    """

    features: Features
    relit: Features
    source: Tensor

    @staticmethod
    def plain(pooled: Tensor) -> "NormalFeatures":
        """Embeddings alone, of images that weren't encoded in other light."""
        return NormalFeatures(Features(pooled), Features(pooled[:0]), torch.empty(0).long())

    def __len__(self) -> int:
        return len(self.features)

    @property
    def pooled(self) -> Tensor:
        return self.features.pooled

    @property
    def small(self) -> "NormalFeatures":
        """Of the images at the smaller size."""
        return NormalFeatures(self.features.in_small(), self.relit.in_small(), self.source)

    @property
    def light_changes(self) -> Tensor:
        """What other light does to the embeddings (k, d)."""
        return self.relit.pooled - self.pooled[self.source]

    def among(self, kept: Tensor) -> "NormalFeatures":
        """Those of the images whose index (m,), in order, is given, with their relit copies."""
        place = {int(k): place for place, k in enumerate(kept)}
        copies = [c for c, k in enumerate(self.source.tolist()) if k in place]
        sources = self.source.new_tensor([place[int(self.source[c])] for c in copies])
        return NormalFeatures(self.features[kept], self.relit[sources.new_tensor(copies)], sources)
