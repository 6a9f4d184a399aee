"""Which anomalies look alike: flagged images grouped by what is anomalous about them.

An image is described by how its most anomalous patches differ from the normal ones that they are
nearest to, and by the direction in which its whitened embedding lies. The data decide how many
groups there are: the number whose groups are best separated (silhouette), or one, where no number
separates them well.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .memory_bank import COMPARED

N_PATCHES = 10  # of an image, the most anomalous ones, that describe its anomaly
FEWEST = 8  # images, below which groups aren't looked for
SMALLEST = 3  # images that make a group
MOST_GROUPS = 6
SEPARATED = 0.25  # the silhouette from which on there is more than one group
N_COMPONENTS = 8  # principal components in which groups are looked for

Array = npt.NDArray[np.float32]
Groups = npt.NDArray[np.int64]


def build_descriptors(patches: Tensor, bank: Tensor, whitened: Tensor) -> Tensor:
    """(n, c + d) of patches (n, k, c), the most anomalous first, the bank's (b, c), and whitened
    embeddings (n, d)."""
    highest = patches[:, :N_PATCHES]
    rows, squares = highest.flatten(0, 1), bank.square().sum(1)
    nearest = [(squares - 2 * r @ bank.T).argmin(dim=1) for r in torch.split(rows, COMPARED)]
    change = (rows - bank[torch.cat(nearest)]).reshape_as(highest).mean(dim=1)
    return torch.cat([to_length_one(change), to_length_one(whitened.to(change.dtype))], dim=1)


def to_length_one(rows: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / lengths.clamp_min(1e-12)


def group_anomalies(descriptors: Array) -> Groups:
    """(n,) of 0, 1, ...: a group for each descriptor (n, c), the largest group first."""
    n = len(descriptors)
    best_groups = np.zeros(n, dtype=np.int64)
    if n < FEWEST or not np.isfinite(descriptors).all() or np.ptp(descriptors, axis=0).max() < 1e-9:
        return best_groups
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.decomposition import PCA
    from sklearn.metrics import silhouette_score

    n_components = min(N_COMPONENTS, n - 1, descriptors.shape[1])
    reduced = PCA(n_components, svd_solver="full").fit_transform(descriptors.astype(np.float64))
    best = SEPARATED
    for k in range(2, min(MOST_GROUPS, n // 2) + 1):
        groups = AgglomerativeClustering(k).fit_predict(reduced)
        if np.bincount(groups).min() < SMALLEST:
            continue
        silhouette = float(silhouette_score(reduced, groups))
        if silhouette > best:
            best, best_groups = silhouette, groups.astype(np.int64)
    return sort_by_size(best_groups)


def sort_by_size(groups: Groups) -> Groups:
    """The same groups, numbered from the largest on."""
    numbers, counts = np.unique(groups, return_counts=True)
    order = numbers[np.argsort(-counts, kind="stable")]
    rank = {int(number): k for k, number in enumerate(order)}
    return np.array([rank[int(group)] for group in groups], dtype=np.int64)
