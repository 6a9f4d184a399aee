"""Shift alignment on mixtures whose truth is known."""

import math

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from stssad.scoring.evidence import LEVEL, combined, halves, p_value_along
from stssad.scoring.whitening import Whitening
from stssad.tuning.shift_alignment import (
    aligned_in,
    alignment,
    augmentation_shift,
    pool_shift,
    shift_alignment,
)

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


def test_whitening_is_by_the_shrunk_covariance() -> None:
    """Against scikit-learn's and numpy's own."""
    from sklearn.covariance import LedoitWolf

    generator = torch.Generator().manual_seed(0)
    Z_trn, new = normals(50, generator), normals(5, generator)
    wanted = LedoitWolf().fit(Z_trn.numpy()).mahalanobis(new.numpy())
    found = Whitening.of(Z_trn)(new).square().sum(dim=1)
    torch.testing.assert_close(found, torch.from_numpy(wanted))
    torch.testing.assert_close(alignment(torch.eye(3)[0], torch.ones(3)), torch.tensor(3**-0.5))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_the_pools_shift_is_that_of_its_anomalies_whatever_their_share(share: float) -> None:
    """π of it, or 1 - π beyond a half, as derived: and never the other way."""
    generator = torch.Generator().manual_seed(0)
    w_trn, w_pool = (
        torch.randn(n, D, dtype=torch.float64, generator=generator) for n in (500, 400)
    )
    shift = torch.zeros(D, dtype=torch.float64)
    shift[3] = 30.0
    w_pool[: round(share * 400)] += shift
    found = pool_shift(w_trn, w_pool)
    assert float(alignment(found, shift)) > 0.97
    assert float(found[3]) == pytest.approx(30 * min(share, 1 - share), rel=0.15)


def test_what_moves_every_image_alike_does_not_count() -> None:
    """Another lamp: the whole pool is elsewhere, and a tenth of it is anomalous besides."""
    generator = torch.Generator().manual_seed(0)
    Z_trn, candidates = normals(600, generator), shifts(generator, 20.0)
    pool = pool_of(300, 0.1, candidates[0], generator) + 0.15 * candidates[1]
    losses = [float(shift_alignment(Z_trn, Z_trn[:50] + s, pool)) for s in candidates]
    assert losses.index(min(losses)) == 0
    by_mean = Whitening.of(Z_trn).shift(pool.mean(dim=0) - Z_trn.mean(dim=0))
    of_light = Whitening.of(Z_trn).shift(candidates[1])
    assert float(alignment(of_light, by_mean)) > 0.8  # a plain mean would have followed the lamp


def test_directions_of_light_are_left_out_of_both_shifts() -> None:
    generator = torch.Generator().manual_seed(0)
    Z_trn, candidates = normals(300, generator), shifts(generator, 10.0)
    changes = torch.randn(50, 1, dtype=torch.float64, generator=generator) * candidates[1]
    whitening = Whitening.of(Z_trn, changes)
    assert float(whitening.shift(candidates[1]).norm()) < 1e-6
    assert float(whitening.shift(candidates[0]).norm()) > 3
    pool = pool_of(200, 0.2, candidates[0] + 3 * candidates[1], generator)
    loss = aligned_in(whitening)
    assert float(loss(Z_trn, Z_trn[:50] + candidates[0], pool)) < 0.5


def p_of(share: float, seed: int, n_trn: int = 120, n_pool: int = 60, light: float = 0.0) -> float:
    """As in a fit: each half whitens, chooses, and is tested by the other."""
    generator = torch.Generator().manual_seed(seed)
    Z_trn, candidates = normals(n_trn, generator), shifts(generator, 8.0)
    pool = pool_of(n_pool, share, candidates[0], generator) + light * candidates[1]
    pool = pool[torch.randperm(n_pool, generator=generator)]
    of_normal, of_pool = halves(n_trn, generator), halves(n_pool, generator)
    found = []
    for k in (0, 1):
        whitening = Whitening.of(Z_trn[of_normal[k]])
        learned = pool_shift(whitening(Z_trn[of_normal[k]]), whitening(pool[of_pool[k]]))
        among = whitening.shift(candidates)
        u = among[int(alignment(among, learned).argmax())]
        normal, others = Z_trn[of_normal[1 - k]], pool[of_pool[1 - k]]
        found.append(p_value_along(whitening(normal), whitening(others), u))
    return combined(*found)


@pytest.mark.parametrize(
    "n_trn,n_pool,light", [(120, 60, 0.0), (40, 30, 0.0), (60, 600, 0.0), (120, 60, 0.3)]
)
def test_clean_pools_give_no_evidence(n_trn: int, n_pool: int, light: float) -> None:
    """p-values are at most what they say; in other light, and with few images, too."""
    found = torch.tensor([p_of(0.0, seed, n_trn, n_pool, light) for seed in range(300)])
    for level, most in ((LEVEL, 8), (0.1, 45)):  # of 300, by the binomial's 99 % quantile
        assert int((found <= level).sum()) <= most


def test_contaminated_pools_give_evidence() -> None:
    assert sum(p_of(0.3, seed) <= LEVEL for seed in range(20)) >= 18


def test_choosing_on_the_images_that_test_would_be_taken_for_evidence() -> None:
    """Why images are halved: tuned and tested on the same clean images, p is too small."""
    found = []
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        Z_trn, pool = normals(120, generator), normals(60, generator)
        whitening = Whitening.of(Z_trn)
        w_trn, w_pool = whitening(Z_trn), whitening(pool)
        own_shift = pool_shift(w_trn, w_pool)  # what unlimited tuning would come to
        found.append(p_value_along(w_trn, w_pool, own_shift))
    assert np.median(found) < 0.3  # of honest ones, a half or more


def test_a_p_value_is_students() -> None:
    """Mean less median, against numpy's, on one direction; and nothing changes if all move."""
    from scipy.stats import t as student

    generator = torch.Generator().manual_seed(0)
    normal, pool = (torch.randn(n, 3, dtype=torch.float64, generator=generator) for n in (12, 7))
    u = torch.tensor([0.0, 2.0, 0.0], dtype=torch.float64)
    x, y = normal[:, 1].numpy(), pool[:, 1].numpy()
    moved = (y.mean() - np.median(y)) - (x.mean() - np.median(x))
    t = moved / (x.std(ddof=1) * (1 / 12 + 1 / 7) ** 0.5)
    assert p_value_along(normal, pool, u) == pytest.approx(float(student.sf(t, 11)))
    assert p_value_along(normal, pool + 7, u) == pytest.approx(float(student.sf(t, 11)))
    assert combined(0.3, 0.004) == 0.008 and combined(0.9, 0.8) == 1.0
    assert p_value_along(normal[:1], pool, u) == 1.0  # nothing to compare with


def test_halves_are_disjoint_and_complete() -> None:
    one, other = halves(11, torch.Generator().manual_seed(3))
    assert sorted([*one.tolist(), *other.tolist()]) == list(range(11)) and len(one) == 5
