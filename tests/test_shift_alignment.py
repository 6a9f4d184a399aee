"""Shift alignment on mixtures whose truth is known."""

import math

import pytest
import torch
from torch import Generator, Tensor

from stssad.scoring.evidence import evidence_score, halves, standard_score
from stssad.scoring.whitening import Whitening, cross_fitted, effective_dimension
from stssad.tuning.shift_alignment import alignment, augmentation_shift, shift_alignment

D = 24


def mixing() -> Tensor:
    """A covariance far from round."""
    generator = torch.Generator().manual_seed(99)
    return torch.randn(D, D, dtype=torch.float64, generator=generator) * torch.logspace(-1, 1, D)


def normals(n: int, generator: Generator) -> Tensor:
    return torch.randn(n, D, dtype=torch.float64, generator=generator) @ mixing().T


def shifts(generator: Generator, length: float) -> Tensor:
    """Five directions, the true one first, of equal length where normal images are round."""
    directions = torch.randn(5, D, dtype=torch.float64, generator=generator)
    directions = length * directions / directions.norm(dim=1, keepdim=True)
    return directions @ mixing().T


def pool_of(n: int, share: float, shift: Tensor, generator: Generator) -> Tensor:
    pool = normals(n, generator)
    pool[: round(share * n)] += shift
    return pool


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
def test_the_true_augmentation_ranks_first(share: float) -> None:
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        Z_trn = normals(300, generator)
        candidates = shifts(generator, length=40.0)
        pool = pool_of(200, share, candidates[0], generator)
        losses = [float(shift_alignment(Z_trn, Z_trn[:50] + s, pool)) for s in candidates]
        assert losses.index(min(losses)) == 0


def test_scale_and_any_linear_map_change_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    Z_trn = normals(2000, generator)
    candidates = shifts(generator, 6.0)
    pool = pool_of(200, 0.3, candidates[0], generator)
    plain = float(shift_alignment(Z_trn, Z_trn[:40] + candidates[1], pool))
    scaled = [7.5 * Z + 3 for Z in (Z_trn, Z_trn[:40] + candidates[1], pool)]
    assert float(shift_alignment(*scaled)) == pytest.approx(plain, abs=1e-6)
    # the length of the augmentation's shift, and so its opacity, doesn't count either
    longer = float(shift_alignment(Z_trn, Z_trn[:40] + 5 * candidates[1], pool))
    assert longer == pytest.approx(plain, abs=1e-6)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
def test_sampling_noise_shrinks_it_as_derived(share: float) -> None:
    length, n_pool, n_trn, found = 6.0, 100, 3000, []
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        Z_trn = normals(n_trn, generator)
        true = shifts(generator, length)[0]
        pool = pool_of(n_pool, share, true, generator)
        found.append(1 - float(shift_alignment(Z_trn, Z_trn[:50] + true, pool)))
    pull = share * length
    wanted = pull / math.sqrt(pull**2 + D * (1 / n_pool + 1 / n_trn))
    assert sum(found) / len(found) == pytest.approx(wanted, abs=0.06)


def test_the_gradient_reaches_the_augmented_embeddings() -> None:
    generator = torch.Generator().manual_seed(0)
    Z_trn = normals(60, generator)
    pool = pool_of(40, 0.5, shifts(generator, 6.0)[0], generator)
    a = (Z_trn[:7] + normals(7, generator)).requires_grad_()
    assert torch.autograd.gradcheck(lambda Z: shift_alignment(Z_trn, Z, pool), a)


def test_the_shift_of_an_augmentation_is_taken_from_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    Z_trn, shift = normals(10, generator), shifts(generator, 1.0)[0]
    Z_aug = torch.cat([Z_trn, Z_trn[:3]]) + shift  # more augmented than training images
    torch.testing.assert_close(augmentation_shift(Z_trn, Z_aug), shift)
    torch.testing.assert_close(augmentation_shift(Z_trn, Z_aug[:4]), shift)


def test_whitened_images_are_round_and_cross_fitted_ones_are_honest() -> None:
    generator = torch.Generator().manual_seed(0)
    Z_trn, new = normals(40, generator), normals(4000, generator)
    whitening = Whitening.of(Z_trn)
    in_sample, out_of_sample = whitening(Z_trn).var(), whitening(new).var()
    crossed = cross_fitted(Z_trn).var()
    assert in_sample < 0.9 * out_of_sample  # why it is needed
    assert crossed == pytest.approx(float(out_of_sample), rel=0.35)
    torch.testing.assert_close(alignment(torch.eye(3)[0], torch.ones(3)), torch.tensor(3**-0.5))


def z_of(share: float, seed: int, n_trn: int = 120, n_pool: int = 60) -> float:
    generator = torch.Generator().manual_seed(seed)
    Z_trn = normals(n_trn, generator)
    candidates = shifts(generator, 6.0)
    pool = pool_of(n_pool, share, candidates[0], generator)
    pool = pool[torch.randperm(n_pool, generator=generator)]
    whitening = Whitening.of(Z_trn)
    crossed, among = cross_fitted(Z_trn), whitening.shift(candidates)
    of_normal, of_pool = ([Z[h] for h in halves(len(Z), seed)] for Z in (Z_trn, pool))
    # each half makes its choice, and the other tests it
    one, other = (
        among[int(alignment(among, whitening.shift(p.mean(dim=0) - n.mean(dim=0))).argmax())]
        for n, p in zip(of_normal, of_pool, strict=True)
    )
    first, second = halves(n_trn, seed)
    pools = whitening(of_pool[0]), whitening(of_pool[1])
    return evidence_score((crossed[first], crossed[second]), pools, (one, other))


@pytest.mark.parametrize("n_trn,n_pool", [(120, 60), (60, 60), (60, 600)])
def test_clean_pools_give_no_evidence(n_trn: int, n_pool: int) -> None:
    """Large pools too, where it is the normal images' mean that is off by chance."""
    assert sum(z_of(0.0, seed, n_trn, n_pool) < 3 for seed in range(100)) >= 95


def test_contaminated_pools_give_evidence() -> None:
    assert sum(z_of(0.3, seed) > 3 for seed in range(20)) >= 19


def test_choosing_on_the_images_that_test_would_be_taken_for_evidence() -> None:
    """Why the pool is halved: tuned and tested on the same cleimages, z is far too large."""
    found = []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        Z_trn, pool = normals(120, generator), normals(60, generator)
        whitening = Whitening.of(Z_trn)
        own_shift = whitening(pool).mean(dim=0)  # what unlimited tuning would come to
        found.append(standard_score(cross_fitted(Z_trn), whitening(pool), own_shift))
    assert sorted(found)[10] > 3


def test_halves_are_disjoint_and_complete() -> None:
    one, other = halves(11, seed=3)
    assert sorted([*one.tolist(), *other.tolist()]) == list(range(11)) and len(one) == 5


def test_effective_dimension_counts_directions() -> None:
    generator = torch.Generator().manual_seed(0)
    round_ = torch.randn(4000, 12, dtype=torch.float64, generator=generator)
    assert effective_dimension(round_) == pytest.approx(12, rel=0.02)
    flat = round_ * torch.tensor([1.0] * 3 + [1e-3] * 9, dtype=torch.float64)
    assert effective_dimension(flat) == pytest.approx(3, rel=0.02)
