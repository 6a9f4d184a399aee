"""What an encoder makes of images: feature maps, and the embedding that belongs to them."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from .layout import canonical


@dataclass(frozen=True)
class Features:
    """`maps`: (n, c, h, w) each, fine to coarse; `pooled`: embeddings (n, d)."""

    maps: list[Tensor]
    pooled: Tensor

    def __len__(self) -> int:
        return len(self.pooled)

    @property
    def is_spatial(self) -> bool:
        """Whether they also tell what is where."""
        return self.maps[0].shape[-1] > 1

    def __getitem__(self, index: Tensor | slice) -> "Features":
        """Some images' features, copied: they compute as if they had just been encoded."""
        return Features([canonical(m[index]) for m in self.maps], canonical(self.pooled[index]))

    def chunks(self, size: int) -> Iterator["Features"]:
        for start in range(0, len(self), size):
            yield self[start : start + size]
