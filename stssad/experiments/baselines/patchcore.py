"""PatchCore (Roth et al., CVPR 2022) on the same encoder: the nearest patch of a memory bank.

A tenth of the normal patches is stored (of at most 50,000), chosen by greedy k-centre; an image's
score is that of its highest-scoring patch, weighted by how alone its nearest neighbour stands
(their Eq. 7, nine neighbours).
"""

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...encoders.efficientnet_lite import EfficientNetLite0
from ...encoders.encoding import as_floats, device_of, each_chunk
from ...encoders.patches import N_MAPS, as_rows
from ...scoring.memory_bank import coreset, patch_distances

N_NEIGHBOURS = 9
MOST_PATCHES = 50_000  # at random, from which the coreset is chosen


def patch_embeddings(maps: list[Tensor]) -> Tensor:
    """(n, d, h, w): two maps, averaged over 3x3 patches, in the size of the finer, as published."""
    averaged = [F.avg_pool2d(m, 3, 1, 1) for m in maps[:N_MAPS]]
    size = averaged[0].shape[-2:]
    upsampled = [
        F.interpolate(m, size=size, mode="bilinear", align_corners=False) for m in averaged[1:]
    ]
    return torch.cat([averaged[0], *upsampled], dim=1)


class PatchCore:
    """What a user would pick who also wants to see where the defect is."""

    def __init__(
        self,
        encoder: nn.Module | None = None,
        seed: int = 0,
        share: float = 0.1,
        device: str = "cpu",
    ) -> None:
        self.encoder, self.seed, self.share, self.device = encoder, seed, share, device

    def fit(self, train: Tensor, unlabeled: Tensor | None = None) -> "PatchCore":
        self.encoder_ = (self.encoder or EfficientNetLite0()).to(self.device).eval()
        generator = torch.Generator().manual_seed(self.seed)
        rows = as_rows(self._patches(train))
        if len(rows) > MOST_PATCHES:  # at 256 px a tenth of all would take minutes to choose
            rows = rows[torch.randperm(len(rows), generator=generator)[:MOST_PATCHES]]
        chosen = coreset(rows, max(1, round(self.share * len(rows))), generator)
        self.bank_ = rows[chosen].contiguous()
        return self

    def _patches(self, images: Tensor) -> Tensor:
        @torch.no_grad()
        def work(chunk: Tensor) -> Tensor:
            floats = as_floats(chunk, device_of(self.encoder_))
            return patch_embeddings(self.encoder_.features(floats)).cpu()  # type: ignore[operator]

        return torch.cat(list(each_chunk(images, work)))

    def anomaly_maps(self, images: Tensor) -> Tensor:
        """(n, h, w): each patch's distance to the nearest normal one."""
        return patch_distances(self._patches(images), self.bank_)

    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]:
        patches = self._patches(images)
        distances = patch_distances(patches, self.bank_).flatten(1)
        worst = distances.argmax(dim=1)
        rows = as_rows(patches)[torch.arange(len(images)) * distances.shape[1] + worst]
        score = distances.gather(1, worst[:, None])[:, 0] * self._weight(rows)
        return score.double().numpy()

    def _weight(self, rows: Tensor) -> Tensor:
        """1 - softmax of the distance to the nearest among its own neighbours in the bank."""
        bank = self.bank_
        nearest = bank[torch.cdist(rows, bank).argmin(dim=1)]
        around = torch.cdist(nearest, bank).topk(min(N_NEIGHBOURS, len(bank)), largest=False)
        distances = torch.stack(
            [torch.linalg.vector_norm(r - bank[i], dim=1) for r, i in zip(rows, around.indices)]  # noqa: B905
        )
        scale = rows.shape[1] ** 0.5
        return 1 - torch.softmax(distances / scale, dim=1)[:, 0]
