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

from .scoring import GaussianDensity, random_folds


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
    fold = random_folds(len(Z_trn), seed)
    whitened = torch.empty(Z_trn.shape, dtype=torch.float64)
    for k in range(int(fold.max()) + 1):
        whitened[fold == k] = Whitening.of(Z_trn[fold != k])(Z_trn[fold == k].double())
    return whitened


def effective_dimension(whitened: Tensor) -> float:
    """Over how many directions pictures that the whitening hasn't seen spread: (Σλ)² / Σλ².

    Far fewer than there are coordinates where normal pictures are fewer: whitening knows only the
    directions that these have shown.
    """
    covariance = torch.cov(whitened.T)
    return float(covariance.trace() ** 2 / covariance.square().sum())


def halves(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two halves of n pictures, at random, each in order."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[: n // 2].sort().values, order[n // 2 :].sort().values


def lean(normal: Tensor, testing: Tensor, shift: Tensor) -> float:
    """z: how far pictures lean towards a shift, against what normal pictures would by chance.

    normal (n, d): whitened pictures that the whitening hasn't seen; testing (m, d) whitened
    likewise; the shift (d,) must not have been chosen or tuned on either.
    """
    u = shift / torch.linalg.vector_norm(shift).clamp_min(torch.finfo(shift.dtype).tiny)
    variance = (normal @ u).var() * (1 / len(testing) + 1 / len(normal))
    return float((testing.mean(dim=0) - normal.mean(dim=0)) @ u / variance.sqrt())


Halves = tuple[Tensor, Tensor]


def evidence(normal: Halves, pool: Halves, shifts: Halves) -> float:
    """z of both halves, of normal pictures and pool, each tested with the other's learned shift.

    The normal pictures are halved as well: a shift is learned *from* them too, and the chance by
    which their mean is off would otherwise count on both sides.
    """
    found = [lean(normal[1], pool[1], shifts[0]), lean(normal[0], pool[0], shifts[1])]
    return (found[0] + found[1]) / 2**0.5
