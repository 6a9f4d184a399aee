"""Embeddings of places: joined maps, the coreset, the nearest normal place."""

import pytest
import torch

from stssad.detector import Detector, FrozenEncoder
from stssad.encoders import EfficientNetLite0
from stssad.local import (
    NormalPlaces,
    PlaceMemory,
    as_rows,
    coreset,
    cross_fitted_places,
    joined,
    place_embeddings,
    place_score,
    upsampled,
    whitening,
)


def frozen() -> FrozenEncoder:
    detector = Detector(EfficientNetLite0(), 64)
    return detector.frozen(*detector.initial_state(0))


def test_joined_maps_have_the_size_of_the_finest() -> None:
    fine, coarse = torch.rand(2, 3, 8, 8), torch.rand(2, 5, 4, 4)
    both = joined([fine, coarse])
    assert both.shape == (2, 8, 8, 8)
    inner = fine[:, :, 2:5, 3:6].mean((2, 3))  # the neighbours of place (3, 4)
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
    found = PlaceMemory(bank).distances(maps)
    wanted = torch.cdist(as_rows(maps), bank).min(dim=1).values.reshape(3, 5, 5)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_memory_without_a_fold_knows_nothing_of_it() -> None:
    generator = torch.Generator().manual_seed(0)
    rows, fold = torch.randn(60, 4, generator=generator), torch.arange(60) % 3
    kept = torch.arange(0, 60, 2)
    whole, crossed = (NormalPlaces(rows, fold, kept).memory(k) for k in (None, 1))
    other = rows.clone()
    other[fold == 1] = 100.0  # whatever that fold holds
    again = NormalPlaces(other, fold, kept).memory(1)
    assert torch.equal(crossed.memory.bank, again.memory.bank)
    assert torch.equal(crossed.transform, again.transform)
    assert len(whole.memory.bank) == 30 and len(crossed.memory.bank) == 20


def test_whitened_places_are_round_but_for_the_shrinkage() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(5000, 4, generator=generator) * torch.tensor([5.0, 1.0, 0.5, 1e-4])
    covariance = torch.cov((rows @ whitening(rows)).T)
    assert float((covariance - covariance.diag().diag()).abs().max()) < 1e-3
    wanted = [v / (0.9 * v + 0.1 * 26.25 / 4) for v in (25.0, 1.0, 0.25, 0.0)]
    assert sorted(covariance.diag().tolist()) == pytest.approx(sorted(wanted), rel=0.1, abs=1e-3)


def test_a_normal_place_has_distance_zero_and_another_has_not() -> None:
    encoder = frozen()
    train = torch.rand(6, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    fold = torch.arange(6) % 2
    normal = NormalPlaces.of(encoder, train, fold, torch.Generator().manual_seed(0))
    memory = normal.memory()
    score, own = memory(place_embeddings(encoder, train))
    crossed_score, crossed = cross_fitted_places(normal, encoder, train, fold)
    assert float(own.max()) < 0.02 * float(crossed.median())  # zero, but for rounding
    assert float(score.max()) == pytest.approx(0, abs=0.02)
    assert float(crossed.min()) > 0.05  # each picture's places lie in its own fold
    assert float(crossed_score.min()) > 1
    changed = train.clone()
    changed[:, :, 40:, :24] = 0.5
    heat = memory(place_embeddings(encoder, changed))[1]
    row, column = divmod(int(heat.mean(dim=0).argmax()), heat.shape[-1])
    assert row >= 5 and column <= 2  # of 8 x 8 places


def test_a_picture_counts_by_its_furthest_places() -> None:
    places = torch.zeros(2, 4, 4)
    places[1, 2, 3], places[1, 0, 0], places[1, 1, 1] = 3.0, 6.0, 9.0
    assert place_score(places).tolist() == pytest.approx([0, 6])


def test_maps_grow_without_moving() -> None:
    places = torch.zeros(1, 8, 8)
    places[0, 2, 5] = 1.0
    grown = upsampled(places, 64)
    row, column = divmod(int(grown[0].argmax()), 64)
    assert abs(row - 2.5 * 8) <= 1 and abs(column - 5.5 * 8) <= 1
    torch.testing.assert_close(upsampled(torch.ones(1, 8, 8), 64), torch.ones(1, 64, 64))
