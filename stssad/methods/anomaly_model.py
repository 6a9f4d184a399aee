"""A fitted model as one module: from images to scores and anomaly maps."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ..encoders.encoding import chunk_size, each_chunk, features_of
from ..encoders.features import Features
from ..parallel.threads import each
from ..scoring.score import Scores


class AnomalyModel(nn.Module):
    """An encoder whose weights stay, and a scorer of its features, on one device."""

    def __init__(
        self,
        encoder: nn.Module,
        scorer: nn.Module,
        image_size: int,
        small_size: int | None = None,
    ) -> None:
        """small_size: the side at which images are encoded a second time; None: they aren't."""
        super().__init__()
        self.encoder, self.scorer = encoder, scorer
        self.image_size, self.small_size = image_size, small_size
        self.eval().requires_grad_(False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Scores:
        """A few images (n, 3, m, m), uint8 or float in [0, 1], in this thread."""
        return self.score(features_of(self.encoder, images, self.small_size))

    @torch.no_grad()
    def score(self, features: Features) -> Scores:
        """The same from features that are there already."""
        return self.scorer(features)  # type: ignore[no-any-return]

    def score_all(self, images: Tensor) -> Scores:
        """Any number of images, a chunk at a time; on the CPU."""
        return concatenate(each_chunk(images, self))

    def score_features(self, features: Features) -> Scores:
        """Any number of images' features: bit-identical to scoring the images."""
        return concatenate(each(features.chunks(chunk_size(self.image_size)), self.score))


def concatenate(chunks: Iterable[Scores]) -> Scores:
    scores = list(chunks)
    maps = [chunk.maps.cpu() for chunk in scores if chunk.maps is not None]
    parts = zip(*(chunk.parts for chunk in scores), strict=True)
    return Scores(
        torch.cat([chunk.scores.cpu() for chunk in scores]),
        [torch.cat([p.cpu() for p in part]) for part in parts],
        torch.cat(maps) if maps else None,
    )
