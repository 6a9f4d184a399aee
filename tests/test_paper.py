"""What the paper proves or claims of its validation loss."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from stssad.scoring.gaussian import score_variance
from stssad.tuning.hypergradient import hypergradient
from stssad.tuning.val_loss import mean_distance_loss, mmd_loss, total_distance_normalize

GRID = torch.linspace(-0.99, 0.99, 41, dtype=torch.float64)


MAP = Path(__file__).parent.parent / "docs" / "paper-map.md"


@pytest.mark.parametrize(
    ("number", "function"), [(1, mean_distance_loss), (3, hypergradient), (4, score_variance)]
)
def test_equations_have_the_papers_numbers(number: int, function: Callable[..., Any]) -> None:
    """Eq. 2 is the inequality before the second-order update, and nothing computes it."""
    words = f"{sys.modules[function.__module__].__doc__}{inspect.getsource(function)}"
    assert f"Eq. {number}" in words and "Eq. 2" not in words
    (row,) = (x for x in MAP.read_text().splitlines() if x.startswith(f"| Eq. {number},"))
    assert f"{function.__module__.removeprefix('stssad.')}.{function.__name__}`" in row


def singleton_loss(u1: Tensor, u2: Tensor) -> Tensor:
    """L_val in the setting of Lemma 2's proof: Z_trn = {0}, Z_aug = {2}, Z_val = {u1, 2 + u2}."""
    zero, two = torch.zeros(1, 1).double(), torch.full((1, 1), 2.0).double()
    return mean_distance_loss(zero, two, torch.stack([u1, 2 + u2])[:, None])


@pytest.mark.parametrize("dim", [1, 7, 512])
def test_loss_is_one_at_perfect_alignment(dim: int) -> None:  # Lemma 1
    z1, z2 = torch.randn(2, 1, dim, dtype=torch.float64, generator=seeded(dim))
    assert mean_distance_loss(z1, z2, torch.cat([z1, z2])).item() == pytest.approx(1, abs=1e-12)


def test_loss_has_its_only_minimum_at_alignment() -> None:  # Lemma 2
    for u1 in GRID:
        for u2 in GRID:
            loss = singleton_loss(u1, u2).item()
            if u1.abs() < 1e-9 and u2.abs() < 1e-9:
                assert loss == pytest.approx(1, abs=1e-12)
            else:
                assert loss > 1 + 1e-6, (u1, u2)


def test_loss_equals_the_closed_form_of_the_proof() -> None:
    for u1, u2 in [(0.3, -0.2), (-0.7, 0.4), (0.9, 0.9), (-0.5, -0.6)]:
        closed = (abs(u1) + abs(u1 - 2) + abs(u2) + abs(u2 + 2)) / (
            3 * u1**2 + 3 * u2**2 - 8 * u1 + 8 * u2 - 2 * u1 * u2 + 16
        ) ** 0.5
        loss = singleton_loss(torch.tensor(u1).double(), torch.tensor(u2).double())
        assert loss.item() == pytest.approx(closed, rel=1e-7)


def test_negative_gradients_point_to_alignment() -> None:
    """A small step along them comes closer to u = 0 (Fig. 3's arrows)."""
    for u1 in GRID:
        for u2 in GRID:
            u = torch.stack([u1, u2]).requires_grad_()
            if u.norm() < 0.05:
                continue
            (gradient,) = torch.autograd.grad(singleton_loss(u[0], u[1]), u)
            assert -(gradient @ u.detach()) < 0, u


def test_loss_ignores_embedding_scale_and_shift() -> None:
    sets = mixture()
    moved = [1000 * Z + 17 for Z in sets]
    assert mean_distance_loss(*moved).item() == pytest.approx(mean_distance_loss(*sets).item())


@pytest.mark.parametrize("n_aug", [16, 64, 128, 256])
def test_optimum_stays_for_any_number_of_augmented_images(n_aug: int) -> None:
    """The paper's ratio robustness: moving Z_aug off the pool's anomalies doesn't pay.

    (With more augmented than training images it can: far beyond the anomalies, where Z_aug alone
    sets the scale, L_val falls to 1/(2 sqrt(p(1-p))) with p = |Z_aug|/N; see docs/paper-map.md.)
    """
    Z_trn, Z_aug, Z_val = mixture(distance=100, contamination=0.5)
    direction = Z_aug.mean(0) - Z_trn.mean(0)
    shifts = torch.linspace(-0.3, 0.3, 41).double()
    losses = [mean_distance_loss(Z_trn, Z_aug[:n_aug] + s * direction, Z_val) for s in shifts]
    assert abs(shifts[int(torch.stack(losses).argmin())].item()) < 0.06


def test_more_copies_of_the_augmented_images_leave_their_centre() -> None:
    """Before normalisation, |Z_aug| doesn't enter at all: only the common scale changes."""
    Z_trn, Z_aug, Z_val = mixture()
    few = torch.cat([Z_trn, Z_aug, Z_val])
    many = torch.cat([Z_trn, Z_aug, Z_aug, Z_aug, Z_val])

    def scale(Z: Tensor) -> float:
        return (torch.linalg.vector_norm(Z - Z.mean(0)) / len(Z) ** 0.5).item()

    ratio = (
        mean_distance_loss(Z_trn, torch.cat([Z_aug] * 3), Z_val)
        / mean_distance_loss(Z_trn, Z_aug, Z_val)
    ).item()
    assert ratio == pytest.approx(scale(few) / scale(many))


def test_normalised_rows_have_zero_mean_and_unit_mean_square() -> None:
    Z = total_distance_normalize(torch.cat(mixture()))
    assert Z.mean(0).abs().max() < 1e-12
    assert Z.square().sum().item() == pytest.approx(len(Z))
    pairwise = torch.cdist(Z, Z).square().sum().item()
    assert pairwise == pytest.approx(2 * len(Z) ** 2)  # TPSD is the same whatever Z was


def test_equal_embeddings_give_a_finite_loss_and_gradient() -> None:
    Z = torch.ones(3, 4).requires_grad_()
    loss = mean_distance_loss(Z, torch.ones(3, 4), torch.ones(2, 4))
    (gradient,) = torch.autograd.grad(loss, Z)
    assert torch.isfinite(loss) and torch.isfinite(gradient).all()


def test_mmd_equals_the_sum_over_pairs() -> None:
    Z_trn, Z_aug, Z_val = (Z[:6] for Z in mixture())
    X, Y = torch.cat([Z_trn, Z_aug]), Z_val
    everything = torch.cat([X, Y])
    distances = [
        (everything[i] - everything[j]).square().sum()
        for i in range(len(everything))
        for j in range(i + 1, len(everything))
    ]
    bandwidth = torch.stack(distances).median()

    def k(A: Tensor, B: Tensor) -> Tensor:
        return torch.stack(
            [torch.exp(-(x - y).square().sum() / bandwidth) for x in A for y in B]
        ).mean()

    expected = k(X, X) + k(Y, Y) - 2 * k(X, Y)
    got = mmd_loss(Z_trn, Z_aug, Z_val, normalize=False)
    assert got.item() == pytest.approx(expected.item(), rel=1e-9)


def test_mmd_is_zero_for_the_same_set_and_linear_mmd_is_the_distance_of_means() -> None:
    Z_trn, Z_aug, _ = mixture()
    together = torch.cat([Z_trn, Z_aug])
    assert mmd_loss(Z_trn, Z_aug, together).item() == pytest.approx(0, abs=1e-12)
    linear = mmd_loss(Z_trn, Z_aug, Z_trn + 1, normalize=False, kernel="linear")
    expected = (together.mean(0) - Z_trn.mean(0) - 1).square().sum()
    assert linear.item() == pytest.approx(expected.item())


def test_linear_mmd_depends_on_scale_unless_normalised() -> None:
    sets = mixture()
    tripled = [3 * Z for Z in sets]
    plain = [mmd_loss(*s, normalize=False, kernel="linear").item() for s in (sets, tripled)]
    normalised = [mmd_loss(*s, kernel="linear").item() for s in (sets, tripled)]
    assert plain[1] == pytest.approx(9 * plain[0])
    assert normalised[1] == pytest.approx(normalised[0])


def mixture(distance: float = 8, contamination: float = 0.3) -> list[Tensor]:
    """Training at 0, augmented and the pool's anomalies at a distance; unit noise in 16 dims."""
    generator = seeded(0)
    anomaly = torch.zeros(16).double()
    anomaly[0] = distance
    Z_trn = torch.randn(256, 16, dtype=torch.float64, generator=generator)
    Z_aug = torch.randn(512, 16, dtype=torch.float64, generator=generator) + anomaly
    Z_val = torch.randn(100, 16, dtype=torch.float64, generator=generator)
    Z_val[: round(100 * contamination)] += anomaly
    return [Z_trn, Z_aug, Z_val]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
