"""Does an augmentation move images the way that the pool's anomalies do?

Legend: w whitened embeddings (by the training images' covariance); π the pool's contamination;
Δ = μ_A - μ_N the anomalies' shift; d dimensions.

The pool's mean shift is (1-π)·0 + π·Δ in expectation: its direction doesn't depend on π. So

    J(a) = cos(μ_aug(a) - μ_trn, μ_pool - μ_trn)

asks for the direction only. Measured J is smaller: the sampling noise of the pool's mean shrinks it
by π|Δ| / √(π²|Δ|² + d(1/n_pool + 1/n_trn)). It ranks augmentations; it is no probability.
"""

import torch
from torch import Tensor

from ..scoring.whitening import Whitening


def augmentation_shift(Z_trn: Tensor, Z_aug: Tensor) -> Tensor:
    """μ_aug - μ_trn, from pairs: Z_aug[i] is made of the image of Z_trn[i mod n].

    Subtracting each image's own embedding takes out what normal images differ by.
    """
    sources = Z_trn[torch.arange(len(Z_aug), device=Z_trn.device) % len(Z_trn)]
    return (Z_aug - sources).mean(dim=0)


def alignment(one: Tensor, other: Tensor) -> Tensor:
    """J: the cosine between two whitened shifts (..., d) and (d,)."""
    tiny = torch.finfo(one.dtype).tiny
    lengths = torch.linalg.vector_norm(one, dim=-1) * torch.linalg.vector_norm(other, dim=-1)
    cosine: Tensor = (one @ other) / lengths.clamp_min(tiny)
    return cosine


def shift_alignment(Z_trn: Tensor, Z_aug: Tensor, Z_val: Tensor) -> Tensor:
    """1 - J: does the augmentation move images where the pool has moved?

    Whitened by the training covariance, which is a constant here. Z_aug[i] must be made of the
    image of Z_trn[i mod n], as the tuners draw them.
    """
    whitening = Whitening.of(Z_trn)
    of_augmentation = whitening.shift(augmentation_shift(Z_trn, Z_aug))
    of_pool = whitening.shift(Z_val.mean(dim=0) - Z_trn.mean(dim=0))
    return 1 - alignment(of_augmentation, of_pool).to(Z_trn.dtype)
