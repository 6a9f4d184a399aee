"""What the pool's outliers teach."""

import pytest
import torch
from torch import Tensor

from stssad.scoring.lesson import DIRECTIONS, lesson_of
from stssad.scoring.whitening import Whitening

D = 20


def normals(n: int, generator: torch.Generator) -> Tensor:
    return torch.randn(n, D, dtype=torch.float64, generator=generator)


def test_agreement_is_the_mean_cosine_of_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    whitening = Whitening.of(normals(200, generator))
    outliers = 3 * normals(7, generator) + 5
    w = whitening(outliers)
    u = w / w.norm(dim=1, keepdim=True)
    pairs = [float(u[i] @ u[j]) for i in range(7) for j in range(7) if i != j]
    shift, lesson = lesson_of(outliers, whitening)
    assert lesson.agreement == pytest.approx(sum(pairs) / len(pairs))
    assert lesson.weight == pytest.approx(DIRECTIONS * lesson.agreement)
    assert shift is not None
    torch.testing.assert_close(whitening.shift(shift), u.mean(dim=0))


def test_outliers_that_go_anywhere_teach_nothing() -> None:
    """In the mean; one lesson may be off by chance, but not by much."""
    generator = torch.Generator().manual_seed(0)
    whitening = Whitening.of(normals(300, generator))
    found = [lesson_of(4 * normals(6, generator), whitening)[1].agreement for _ in range(200)]
    assert sum(found) / 200 < 0.04 and max(found) < 0.25


def test_two_outliers_are_too_few() -> None:
    generator = torch.Generator().manual_seed(0)
    whitening = Whitening.of(normals(50, generator))
    shift, lesson = lesson_of(normals(2, generator) + 9, whitening)
    assert shift is None and lesson.weight == 0 and lesson.n_outliers == 2
