"""Does an augmentation move pictures the way that the pool's anomalies do?

Legend: w whitened embeddings (by the training pictures' covariance); π the pool's contamination;
Δ = μ_A - μ_N the anomalies' shift; d dimensions; u a direction of unit length.

The pool's mean shift is (1-π)·0 + π·Δ in expectation: its direction doesn't depend on π. So

    J(a) = cos(μ_aug(a) - μ_trn, μ_pool - μ_trn)

asks for the direction only. Measured J is smaller: the sampling noise of the pool's mean shrinks it
by π|Δ| / √(π²|Δ|² + d(1/n_pool + 1/n_trn)). It ranks augmentations; it is no probability.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .scoring import GaussianDensity

N_FOLDS = 5


@dataclass(frozen=True)
class Whitening:
    """Coordinates in which normal pictures are alike in all directions."""

    mean: Tensor
    cholesky: Tensor

    @staticmethod
    def of(Z_trn: Tensor) -> "Whitening":
        density = GaussianDensity().fit(Z_trn)
        assert density.mean is not None and density.cholesky is not None
        return Whitening(density.mean, density.cholesky)

    def shift(self, difference: Tensor) -> Tensor:
        """A difference of embeddings (d,) or (n, d), whitened; differentiable."""
        rows = difference.reshape(-1, difference.shape[-1]).double()
        cholesky = self.cholesky.to(rows.device)
        solved: Tensor = torch.linalg.solve_triangular(cholesky, rows.T, upper=False)
        return solved.T.reshape(difference.shape)

    def __call__(self, Z: Tensor) -> Tensor:
        """Embeddings (n, d), whitened and centred."""
        return self.shift(Z - self.mean.to(Z.device))


def augmentation_shift(Z_trn: Tensor, Z_aug: Tensor) -> Tensor:
    """μ_aug - μ_trn, from pairs: Z_aug[i] is made of the picture of Z_trn[i mod n].

    Subtracting each picture's own embedding takes out what normal pictures differ by.
    """
    sources = Z_trn[torch.arange(len(Z_aug), device=Z_trn.device) % len(Z_trn)]
    return (Z_aug - sources).mean(dim=0)


def alignment(one: Tensor, other: Tensor) -> Tensor:
    """J: the cosine between two whitened shifts (..., d) and (d,)."""
    tiny = torch.finfo(one.dtype).tiny
    lengths = torch.linalg.vector_norm(one, dim=-1) * torch.linalg.vector_norm(other, dim=-1)
    cosine: Tensor = (one @ other) / lengths.clamp_min(tiny)
    return cosine


def cross_fitted(Z_trn: Tensor, seed: int = 0) -> Tensor:
    """Training embeddings (n, d), each whitened by the others.

    In sample, whitened variance is far below that of new pictures where n is near d.
    """
    generator = torch.Generator().manual_seed(seed)
    fold = torch.randperm(len(Z_trn), generator=generator) % min(N_FOLDS, len(Z_trn) // 2)
    whitened = torch.empty(Z_trn.shape, dtype=torch.float64)
    for k in range(int(fold.max()) + 1):
        whitened[fold == k] = Whitening.of(Z_trn[fold != k])(Z_trn[fold == k].double())
    return whitened


def evidence(normal: Tensor, pool: Tensor, shifts: Tensor, seed: int = 0) -> float:
    """z: does the pool lean towards the best of the shifts more than normal pictures would?

    normal (n, d): whitened pictures that the whitening hasn't seen; pool (m, d) whitened likewise;
    shifts (k, d): those of the augmentations to choose from. The choice is made on one half of the
    pool and tested on the other, both ways, so that choosing is not mistaken for evidence.
    """
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))
    halves = pool[order[: len(order) // 2]], pool[order[len(order) // 2 :]]
    center = normal.mean(dim=0)
    found = []
    for choosing, testing in (halves, halves[::-1]):
        best = shifts[int(alignment(shifts, choosing.mean(dim=0) - center).argmax())]
        u = best / torch.linalg.vector_norm(best).clamp_min(torch.finfo(best.dtype).tiny)
        variance = (normal @ u).var() * (1 / len(testing) + 1 / len(normal))
        found.append(((testing.mean(dim=0) - center) @ u) / variance.sqrt())
    return float((found[0] + found[1]) / 2**0.5)
