"""Embeddings of places: joined maps, the coreset, the nearest normal place."""

import pytest
import torch

from stssad.local import PatchMemory, as_rows, coreset, joined


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
    found = PatchMemory(bank).distances(maps)
    wanted = torch.cdist(as_rows(maps), bank).min(dim=1).values.reshape(3, 5, 5)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_normal_place_has_distance_zero() -> None:
    maps = torch.rand(2, 4, 3, 3)
    memory = PatchMemory.of(maps, 1.0, torch.Generator().manual_seed(0))
    assert float(memory.distances(maps).max()) == pytest.approx(0, abs=2e-3)
