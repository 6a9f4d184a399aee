"""The memory bank: patch embeddings, the coreset, the nearest normal patch."""

import pytest
import torch

from stssad import EfficientNetLite0, MemoryBank
from stssad.encoders.encoding import encode
from stssad.features import Features
from stssad.scoring.anomaly_map import upsampled
from stssad.scoring.memory_bank import (
    as_rows,
    coreset,
    highest,
    patch_distances,
    patch_embeddings,
    patch_whitening,
)


def test_patch_embeddings_have_the_size_of_the_finest() -> None:
    fine, coarse = torch.rand(2, 3, 8, 8), torch.rand(2, 5, 4, 4)
    both = patch_embeddings([fine, coarse])
    assert both.shape == (2, 8, 8, 8)
    inner = fine[:, :, 2:5, 3:6].mean((2, 3))  # the neighbours of patch (3, 4)
    torch.testing.assert_close(both[:, :3, 3, 4], inner)
    assert torch.equal(as_rows(both)[8 + 2], both[0, :, 1, 2])


def test_the_coreset_covers_every_cluster() -> None:
    generator = torch.Generator().manual_seed(0)
    centers = 100 * torch.randn(6, 10, generator=generator)
    sizes = (500, 300, 1, 2, 50, 1)  # rare ones too
    rows = torch.cat(
        [
            c + 0.1 * torch.randn(n, 10, generator=generator)
            for c, n in zip(centers, sizes, strict=True)
        ]
    )
    kept = coreset(rows, 6, generator)
    nearest = torch.cdist(rows[kept], centers).argmin(dim=1)
    assert sorted(nearest.tolist()) == list(range(6))
    assert len(coreset(rows[:4], 9, generator)) == 4


def test_distances_are_those_to_the_nearest() -> None:
    generator = torch.Generator().manual_seed(0)
    bank = torch.randn(30, 4, generator=generator)
    maps = torch.randn(3, 4, 5, 5, generator=generator)
    found = patch_distances(maps, bank)
    wanted = torch.cdist(as_rows(maps), bank).min(dim=1).values.reshape(3, 5, 5)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_fold_is_scored_without_having_been_seen() -> None:
    """Whatever a fold holds, the other folds' scores of it don't come from itself."""
    generator = torch.Generator().manual_seed(0)
    maps, fold = torch.randn(9, 4, 5, 5, generator=generator), torch.arange(9) % 3
    whole = MemoryBank(size=120)
    crossed = whole.fit(Features([maps], maps.mean((2, 3))), fold, seed=0)
    others = maps[fold != 1]
    alone = MemoryBank(size=10_000)  # keeps every patch of the other folds
    alone.fit(Features([others], others.mean((2, 3))), torch.arange(6) % 2, seed=0)
    found = alone(Features([maps[fold == 1]], maps[fold == 1].mean((2, 3))))
    assert crossed.maps is not None and found.maps is not None
    # a coreset of the same patches is never nearer than all of them
    assert (crossed.maps[fold == 1] >= found.maps - 1e-5).all()
    own = whole(Features([maps], maps.mean((2, 3))))
    assert own.maps is not None and float(own.maps.median()) < float(crossed.maps.median())


def test_whitened_patches_are_round_but_for_the_shrinkage() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(5000, 4, generator=generator) * torch.tensor([5.0, 1.0, 0.5, 1e-4])
    covariance = torch.cov((rows @ patch_whitening(rows)).T)
    assert float((covariance - covariance.diag().diag()).abs().max()) < 1e-3
    wanted = [v / (0.9 * v + 0.1 * 26.25 / 4) for v in (25.0, 1.0, 0.25, 0.0)]
    assert sorted(covariance.diag().tolist()) == pytest.approx(sorted(wanted), rel=0.1, abs=1e-3)


@pytest.mark.bit_identical
def test_a_normal_patch_has_distance_zero_and_another_has_not() -> None:
    encoder = EfficientNetLite0().eval()
    train = torch.rand(6, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    bank, normal = MemoryBank(), encode(encoder, train)
    crossed = bank.fit(normal, torch.arange(6) % 2, seed=0)
    own = bank(normal)
    assert own.maps is not None and crossed.maps is not None
    assert float(own.maps.max()) < 0.02 * float(crossed.maps.median())  # zero, but for rounding
    assert float(own.scores.max()) == pytest.approx(0, abs=0.02)
    assert float(crossed.maps.min()) > 0.05  # each image's patches lie in its own fold
    assert float(crossed.scores.min()) > 1
    changed = train.clone()
    changed[:, :, 40:, :24] = 0.5
    maps = bank(encode(encoder, changed)).maps
    assert maps is not None
    row, column = divmod(int(maps.mean(dim=0).argmax()), maps.shape[-1])
    assert row >= 5 and column <= 2  # of 8 x 8 patches


def test_an_image_counts_by_its_highest_scoring_patches() -> None:
    distances = torch.zeros(2, 4, 4)
    distances[1, 2, 3], distances[1, 0, 0], distances[1, 1, 1] = 3.0, 6.0, 9.0
    assert highest(distances).tolist() == pytest.approx([0, 6])


def test_maps_grow_without_moving() -> None:
    maps = torch.zeros(1, 8, 8)
    maps[0, 2, 5] = 1.0
    grown = upsampled(maps, 64)
    row, column = divmod(int(grown[0].argmax()), 64)
    assert abs(row - 2.5 * 8) <= 1 and abs(column - 5.5 * 8) <= 1
    torch.testing.assert_close(upsampled(torch.ones(1, 8, 8), 64), torch.ones(1, 64, 64))
