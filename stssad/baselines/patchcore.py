"""PatchCore (Roth et al., CVPR 2022) on the same encoder: nearest normal place, from a coreset.

A tenth of the normal places is kept, chosen by greedy k-centre; a picture's score is that of its
furthest place, weighted by how alone its nearest neighbour stands (their Eq. 7, nine neighbours).
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..detector import Detector
from ..encoders import EfficientNetLite0
from ..local import PlaceMemory, as_rows, coreset, place_embeddings

N_NEIGHBOURS = 9


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
        encoder = self.encoder or EfficientNetLite0()
        detector = Detector(encoder, train.shape[-1], self.device)
        self.frozen_ = detector.frozen(*detector.initial_state(seed=0))
        generator = torch.Generator().manual_seed(self.seed)
        rows = as_rows(self._places(train))
        kept = coreset(rows, max(1, round(self.share * len(rows))), generator)
        self.memory_ = PlaceMemory(rows[kept].contiguous())
        return self

    def _places(self, images: Tensor) -> Tensor:
        return place_embeddings(self.frozen_, images)

    def heatmaps(self, images: Tensor) -> Tensor:
        """(n, h, w): each place's distance to the nearest normal one."""
        return self.memory_.distances(self._places(images))

    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]:
        places = self._places(images)
        distances = self.memory_.distances(places).flatten(1)
        worst = distances.argmax(dim=1)
        n_places = distances.shape[1]
        rows = as_rows(places)[torch.arange(len(images)) * n_places + worst]
        score = distances.gather(1, worst[:, None])[:, 0] * self._weight(rows)
        return score.double().numpy()

    def _weight(self, rows: Tensor) -> Tensor:
        """1 - softmax of the distance to the nearest among its own neighbours in the bank."""
        bank = self.memory_.bank
        nearest = bank[torch.cdist(rows, bank).argmin(dim=1)]
        around = torch.cdist(nearest, bank).topk(min(N_NEIGHBOURS, len(bank)), largest=False)
        distances = torch.stack(
            [torch.linalg.vector_norm(r - bank[i], dim=1) for r, i in zip(rows, around.indices)]  # noqa: B905
        )
        scale = rows.shape[1] ** 0.5
        return 1 - torch.softmax(distances / scale, dim=1)[:, 0]
