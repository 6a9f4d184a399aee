"""What a reviewer has labeled: images that resemble a known defect count for more.

Legend: w a whitened embedding; c its largest cosine, at least 0, with those of labeled images.

Whitened by a shrunk covariance, the direction in which a defect lies is its linear discriminant
against normal images. An image's distance gains by the factor 1 + WEIGHT·max(0, c_defect - c_good):
what lies as close to something that was called good gains nothing.
"""

import torch
from torch import Tensor, nn

from .whitening import Whitening

WEIGHT = 8.0


class Examples(nn.Module):
    """Embeddings (k, d) of defects and of good ones, as the encoder gives them: every whitening
    (of the whole fit, of a fold) sees them in its own way. None of either at first."""

    def __init__(self, defects: Tensor | None = None, good: Tensor | None = None) -> None:
        super().__init__()
        self.defects: Tensor | None
        self.good: Tensor | None
        self.register_buffer("defects", defects)
        self.register_buffer("good", good)

    def gain(self, w: Tensor, whitening: Whitening, own: Tensor | None = None) -> Tensor:
        """The factor (n,) of whitened embeddings (n, d).

        own: (n,), which example each of them is, the defects counted first, -1 where it is none:
        nothing resembles itself.
        """
        if self.defects is None:
            return torch.ones_like(w[:, 0])
        known = self.defects if self.good is None else torch.cat([self.defects, self.good])
        cosines = directions(w) @ directions(whitening(known)).T
        if own is not None:
            columns = torch.arange(len(known), device=w.device)
            cosines = cosines.masked_fill(own.to(w.device)[:, None] == columns, 0.0)
        n_defects = len(self.defects)
        more = largest(cosines[:, :n_defects])
        if self.good is not None:
            more = (more - largest(cosines[:, n_defects:])).clamp_min(0)
        return 1 + WEIGHT * more


def directions(w: Tensor) -> Tensor:
    return w / w.square().sum(dim=1, keepdim=True).sqrt().clamp_min(1e-300)


def largest(cosines: Tensor) -> Tensor:
    """(n,) of (n, k), at least 0."""
    return cosines.clamp_min(0).amax(dim=1)
