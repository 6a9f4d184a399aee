"""Does an augmentation move images the way that the pool's anomalies do?

Legend: w whitened embeddings (by the training images' covariance, less the directions of light); π
the pool's contamination; Δ = μ_A - μ_N the anomalies' shift; d dimensions.

Order the pool by |w|. Anomalies are in the outer half, so that in expectation

    ½(mean w of the outer half - mean w of the inner half) = πΔ        (π ≤ ½; beyond, (1-π)Δ)

Its direction doesn't depend on π, and what moves *all* images alike (another lamp, another camera)
is in both halves and cancels, but for what it does to the order. So

    J(a) = cos(μ_aug(a) - μ_trn, outward shift of the pool - that of the training images)

asks whether the augmentation moves images as the pool's anomalies have moved. Measured J is
smaller: sampling noise shrinks it by π|Δ| / √(π²|Δ|² + d(1/n_pool + 1/n_trn)). It ranks
augmentations; it is no probability.
"""

import torch
from torch import Tensor

from ..scoring.whitening import Whitening
from .val_loss import ValLoss


def augmentation_shift(Z_trn: Tensor, Z_aug: Tensor) -> Tensor:
    """μ_aug - μ_trn, from pairs: Z_aug[i] is made of the image of Z_trn[i mod n].

    Subtracting each image's own embedding takes out what normal images differ by.
    """
    sources = Z_trn[torch.arange(len(Z_aug), device=Z_trn.device) % len(Z_trn)]
    return (Z_aug - sources).mean(dim=0)


def outward(w: Tensor) -> Tensor:
    """w (n, d) with its sign turned for the inner half of the images, by |w|."""
    order = w.square().sum(dim=1).argsort()
    signs = torch.ones(len(w), dtype=w.dtype, device=w.device)
    signs[order[: len(w) // 2]] = -1
    return w * signs[:, None]


def pool_shift(w_trn: Tensor, w_val: Tensor) -> Tensor:
    """How the pool's anomalies have moved, times π: outward shifts, whitened (d,)."""
    return outward(w_val).mean(dim=0) - outward(w_trn).mean(dim=0)


def alignment(one: Tensor, other: Tensor) -> Tensor:
    """J: the cosine between two whitened shifts (..., d) and (d,)."""
    tiny = torch.finfo(one.dtype).tiny
    lengths = torch.linalg.vector_norm(one, dim=-1) * torch.linalg.vector_norm(other, dim=-1)
    cosine: Tensor = (one @ other) / lengths.clamp_min(tiny)
    return cosine


def aligned_in(whitening: Whitening) -> ValLoss:
    """1 - J, in coordinates that are computed once."""

    def loss(Z_trn: Tensor, Z_aug: Tensor, Z_val: Tensor) -> Tensor:
        of_augmentation = whitening.shift(augmentation_shift(Z_trn, Z_aug))
        of_pool = pool_shift(whitening(Z_trn), whitening(Z_val))
        return 1 - alignment(of_augmentation, of_pool).to(Z_trn.dtype)

    return loss


def shift_alignment(Z_trn: Tensor, Z_aug: Tensor, Z_val: Tensor) -> Tensor:
    """1 - J: does the augmentation move images where the pool's anomalies have moved?

    Whitened by the training covariance, which is a constant here. Z_aug[i] must be made of the
    image of Z_trn[i mod n], as the tuners draw them.
    """
    return aligned_in(Whitening.of(Z_trn.detach()))(Z_trn, Z_aug, Z_val)
