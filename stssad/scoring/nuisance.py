"""Directions in which images differ for reasons that are no defects, and leaving them out.

Relit copies of normal images (`augment.light`) show what other light does to features. Their few
strongest directions are projected out: normal images in other light then stay where they were.
"""

import torch
from torch import Tensor


def leading_directions(changes: Tensor, n_directions: int) -> Tensor:
    """(k, d), orthonormal: the directions in which changes (n, d) are largest, in mean square.

    About zero, not about their mean: a change that all have in common is one, too.
    """
    k = min(n_directions, *changes.shape)
    if k == 0:
        return changes.new_empty(0, changes.shape[1])
    rows = changes.double()
    vectors: Tensor
    if len(rows) < rows.shape[1]:  # by the smaller of the two matrices of products
        of_rows = torch.linalg.eigh(rows @ rows.T)[1].flip(1)[:, :k]
        vectors = torch.linalg.qr(rows.T @ of_rows)[0].T
    else:
        vectors = torch.linalg.eigh(rows.T @ rows)[1].T.flip(0)
    return vectors[:k].to(changes.dtype)


def without(rows: Tensor, directions: Tensor) -> Tensor:
    """Rows (n, d) less their part along orthonormal directions (k, d)."""
    if len(directions) == 0:
        return rows
    if directions.ndim != 2:
        raise ValueError(f"directions must be (k, d), got {tuple(directions.shape)}")
    return rows - (rows @ directions.T) @ directions
