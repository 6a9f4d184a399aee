"""Validation losses: do training plus augmented images match the unlabeled pool? (Sec. 4.1)

Legend: Z_trn, Z_aug, Z_val embeddings (n, d) of training, augmented and pool images; N all rows.

Each loss maps the three to a scalar to be minimised over `a`. Normalisation is part of the loss, so
that the ablations are only other losses: MMD1 = mmd_loss, MMD2 = mmd_loss without normalisation.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

ValLoss = Callable[[Tensor, Tensor, Tensor], Tensor]


def total_distance_normalize(Z: Tensor) -> Tensor:
    """Centre the rows of Z (N, d) and scale them to unit mean squared norm: |Z'|_F^2 = N."""
    centered = Z - Z.mean(dim=0)
    norm: Tensor = torch.linalg.vector_norm(centered)
    # All rows equal: there is nothing to scale, and 0/0 would poison `a` with NaN.
    scale: float = len(Z) ** 0.5
    return centered * scale / norm.clamp_min(torch.finfo(Z.dtype).tiny)


def _normalize_together(Z_trn: Tensor, Z_aug: Tensor, Z_val: Tensor) -> tuple[Tensor, ...]:
    sizes = [len(Z_trn), len(Z_aug), len(Z_val)]
    return torch.split(total_distance_normalize(torch.cat([Z_trn, Z_aug, Z_val])), sizes)


def mean_distance_loss(Z_trn: Tensor, Z_aug: Tensor, Z_val: Tensor) -> Tensor:
    """L_val, Eq. 1: mean distance of the pool to the centres of the other two, averaged.

    Eq. 1 prints a sum over Z_val; Lemma 1 (L_val = 1 at perfect alignment) holds for the mean only.
    """
    Z_trn, Z_aug, Z_val = _normalize_together(Z_trn, Z_aug, Z_val)
    to_trn: Tensor = torch.linalg.vector_norm(Z_val - Z_trn.mean(dim=0), dim=1)
    to_aug: Tensor = torch.linalg.vector_norm(Z_val - Z_aug.mean(dim=0), dim=1)
    return (to_trn.mean() + to_aug.mean()) / 2


def _squared_distances(A: Tensor, B: Tensor) -> Tensor:
    """(n, m) squared distances; by the expanded form, whose gradient is finite at distance zero."""
    squares = A.square().sum(1)[:, None] + B.square().sum(1)[None] - 2 * A @ B.T
    return squares.clamp_min(0)


def _median_bandwidth(Z: Tensor) -> Tensor:
    """The median squared distance between different rows, as a constant: it sets the scale of the
    kernel, and `a` must not lower the loss by moving the scale."""
    Z = Z.detach()
    upper = torch.triu_indices(len(Z), len(Z), offset=1, device=Z.device)
    median = _squared_distances(Z, Z)[upper[0], upper[1]].median()
    return median.clamp_min(torch.finfo(Z.dtype).tiny)


def mmd_loss(
    Z_trn: Tensor,
    Z_aug: Tensor,
    Z_val: Tensor,
    normalize: bool = True,
    kernel: Literal["rbf", "linear"] = "rbf",
) -> Tensor:
    """Squared maximum mean discrepancy (biased estimate) between Z_trn with Z_aug, and Z_val."""
    if normalize:
        Z_trn, Z_aug, Z_val = _normalize_together(Z_trn, Z_aug, Z_val)
    X = torch.cat([Z_trn, Z_aug])
    if kernel == "linear":
        return (X.mean(dim=0) - Z_val.mean(dim=0)).square().sum()
    bandwidth = _median_bandwidth(torch.cat([X, Z_val]))

    def mean_kernel(A: Tensor, B: Tensor) -> Tensor:
        return torch.exp(-_squared_distances(A, B) / bandwidth).mean()

    return mean_kernel(X, X) + mean_kernel(Z_val, Z_val) - 2 * mean_kernel(X, Z_val)
