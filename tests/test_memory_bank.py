"""The memory bank: patch embeddings, the coreset, the nearest normal patch."""

import pytest
import torch
from torch import Tensor

from stssad import EfficientNetLite0
from stssad.encoders.encoding import encode
from stssad.encoders.features import Features, NormalFeatures
from stssad.encoders.patches import as_rows, patches_of
from stssad.experiments.baselines.patchcore import patch_embeddings
from stssad.scoring.anomaly_map import MapScale, upsampled
from stssad.scoring.memory_bank import MemoryBank, coreset, highest, patch_distances


def without_light(features: Features) -> NormalFeatures:
    """No image is known in other light."""
    return NormalFeatures(features, features[:0], torch.empty(0, dtype=torch.long))


def test_patches_have_the_size_of_the_second_map() -> None:
    fine, coarse = torch.rand(2, 3, 8, 8), torch.rand(2, 5, 4, 4)
    both = patches_of([fine, coarse, torch.rand(2, 9, 2, 2)])
    assert both is not None and both.shape == (2, 8, 4, 4)
    # patch (1, 2) of 4 x 4: the 3x3 means around (2, 4), (2, 5), (3, 4), (3, 5) of 8 x 8
    around = [fine[:, :, i - 1 : i + 2, j - 1 : j + 2].mean((2, 3)) for i in (2, 3) for j in (4, 5)]
    torch.testing.assert_close(both[:, :3, 1, 2], torch.stack(around).mean(0))
    assert torch.equal(as_rows(both)[4 + 2], both[0, :, 1, 2])
    assert patches_of([torch.rand(2, 3, 1, 1)]) is None


def test_patchcores_have_the_size_of_the_first() -> None:
    fine, coarse = torch.rand(2, 3, 8, 8), torch.rand(2, 5, 4, 4)
    both = patch_embeddings([fine, coarse])
    assert both.shape == (2, 8, 8, 8)
    inner = fine[:, :, 2:5, 3:6].mean((2, 3))  # the neighbours of patch (3, 4)
    torch.testing.assert_close(both[:, :3, 3, 4], inner)


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
    features = Features(maps.mean((2, 3)), maps)
    crossed = whole.fit(without_light(features), fold, seed=0)
    alone = MemoryBank(size=10_000)  # keeps every patch of the other folds
    alone.fit(without_light(features[fold != 1]), torch.arange(6) % 2, seed=0)
    found = alone(features[fold == 1])
    assert crossed.maps is not None
    # a coreset of the same patches is never nearer than all of them
    assert (crossed.maps[fold == 1] >= found - 1e-5).all()
    assert float(whole(features).median()) < float(crossed.maps.median())


def test_what_light_does_to_patches_is_left_out() -> None:
    """Patches that light moves along one direction, further than they differ otherwise."""
    generator = torch.Generator().manual_seed(0)
    patches = torch.randn(12, 6, 8, 8, generator=generator)
    light = torch.nn.functional.normalize(torch.randn(6, generator=generator), dim=0)
    strength = 20 * torch.randn(12, 1, 1, 1, generator=generator)
    lit = patches + strength * light[:, None, None]
    original, other = Features(patches.mean((2, 3)), patches), Features(lit.mean((2, 3)), lit)
    fold = torch.arange(12) % 3
    normal = NormalFeatures(original, other, torch.arange(12))
    robust, plain = MemoryBank(n_nuisance=1), MemoryBank(n_nuisance=0)
    for bank in (robust, plain):
        bank.fit(normal, fold, seed=0)

    def scores(bank: MemoryBank, features: Features) -> Tensor:
        return highest(bank(features), 3)

    torch.testing.assert_close(
        scores(robust, other), scores(robust, original), atol=1e-2, rtol=1e-2
    )
    assert float(scores(plain, other).median()) > 5 * float(scores(plain, original).max() + 1)


@pytest.mark.bit_identical
def test_a_normal_patch_has_distance_zero_and_another_has_not() -> None:
    encoder = EfficientNetLite0().eval()
    train = torch.rand(6, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    bank, normal = MemoryBank(), encode(encoder, train)
    crossed = bank.fit(without_light(normal), torch.arange(6) % 2, seed=0)
    own = bank(normal)
    assert crossed.maps is not None
    assert float(own.max()) < 0.02 * float(crossed.maps.median())  # zero, but for rounding
    assert float(highest(own, 3).max()) == pytest.approx(0, abs=0.02)
    assert float(crossed.maps.min()) > 0.05  # each image's patches lie in its own fold
    assert float(crossed.scores.min()) > 1
    changed = train.clone()
    changed[:, :, 40:, :24] = 0.5
    maps = bank(encode(encoder, changed))
    row, column = divmod(int(maps.mean(dim=0).argmax()), maps.shape[-1])
    assert row >= 2 and column <= 1  # of 4 x 4 patches


def test_an_image_counts_by_its_highest_scoring_patches() -> None:
    distances = torch.zeros(2, 4, 4)
    distances[1, 2, 3], distances[1, 0, 0], distances[1, 1, 1] = 3.0, 6.0, 9.0
    assert highest(distances, 3).tolist() == pytest.approx([0, 6])
    assert highest(distances, 1).tolist() == pytest.approx([0, 9])


def test_heatmaps_of_clean_images_stay_dark_where_defects_are_rare() -> None:
    generator = torch.Generator().manual_seed(0)
    normal, pool = (torch.rand(n, 8, 8, generator=generator) for n in (200, 60))
    pool[0, 2:4, 2:4] += 3
    scale = MapScale.of(normal, pool)
    of_images = scale(pool).flatten(1).max(dim=1).values
    assert float(of_images[0]) == 1 and float(of_images[1:].median()) < 0.2
    assert float(scale(normal).mean()) < 0.02


def test_maps_grow_without_moving() -> None:
    maps = torch.zeros(1, 8, 8)
    maps[0, 2, 5] = 1.0
    grown = upsampled(maps, 64)
    row, column = divmod(int(grown[0].argmax()), 64)
    assert abs(row - 2.5 * 8) <= 1 and abs(column - 5.5 * 8) <= 1
    torch.testing.assert_close(upsampled(torch.ones(1, 8, 8), 64), torch.ones(1, 64, 64))
