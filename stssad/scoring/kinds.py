"""Which anomalies look alike: flagged images grouped by what is anomalous about them.

An image is described by how its most anomalous patches differ from the normal ones that they are
nearest to, and by the direction in which its whitened embedding lies. How many groups there are is
decided by the data: the number whose groups are best set apart (silhouette), or one, where none is
set apart well.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .memory_bank import COMPARED

N_PATCHES = 10  # of an image, the most anomalous ones, that say what is wrong with it
FEWEST = 8  # images, below which nobody can tell
SMALLEST = 3  # images that make a kind
MOST_KINDS = 6
SET_APART = 0.25  # the silhouette from which on there is more than one kind
N_COMPONENTS = 8  # principal components in which groups are looked for

Array = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def descriptors(patches: Tensor, bank: Tensor, whitened: Tensor) -> Tensor:
    """(n, c + d) of patches (n, k, c), the most anomalous first, the bank's (b, c), and whitened
    embeddings (n, d)."""
    some = patches[:, :N_PATCHES]
    rows, squares = some.flatten(0, 1), bank.square().sum(1)
    nearest = [(squares - 2 * r @ bank.T).argmin(dim=1) for r in torch.split(rows, COMPARED)]
    change = (rows - bank[torch.cat(nearest)]).reshape_as(some).mean(dim=1)
    return torch.cat([to_length_one(change), to_length_one(whitened.to(change.dtype))], dim=1)


def to_length_one(rows: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / lengths.clamp_min(1e-12)


def kinds_of(rows: Array) -> Labels:
    """(n,) of 0, 1, ...: a group for each descriptor (n, c), the largest group first."""
    n = len(rows)
    alone = np.zeros(n, dtype=np.int64)
    if n < FEWEST or not np.isfinite(rows).all() or np.ptp(rows, axis=0).max() < 1e-9:
        return alone
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.decomposition import PCA
    from sklearn.metrics import silhouette_score

    n_components = min(N_COMPONENTS, n - 1, rows.shape[1])
    reduced = PCA(n_components, svd_solver="full").fit_transform(rows.astype(np.float64))
    best, found = SET_APART, alone
    for k in range(2, min(MOST_KINDS, n // 2) + 1):
        labels = AgglomerativeClustering(k).fit_predict(reduced)
        if np.bincount(labels).min() < SMALLEST:
            continue
        how_well = float(silhouette_score(reduced, labels))
        if how_well > best:
            best, found = how_well, labels.astype(np.int64)
    return by_size(found)


def by_size(labels: Labels) -> Labels:
    """The same groups, numbered from the largest on."""
    names, counts = np.unique(labels, return_counts=True)
    order = names[np.argsort(-counts, kind="stable")]
    place = {int(name): k for k, name in enumerate(order)}
    return np.array([place[int(label)] for label in labels], dtype=np.int64)
