"""Augmentations against independent forms, and their gradients against numerical ones."""

import inspect
import math

import pytest
import torch
from torch import Tensor

from stssad import (
    Blur,
    CutDiff,
    CutOut,
    CutPaste,
    Patch,
    Rotation,
    Scratch,
    Stain,
    Warp,
)
from stssad.augment import Augmentation
from stssad.augment.blur import smoothed
from stssad.augment.cutdiff import cutdiff
from stssad.augment.perturbed import Perturbed
from stssad.augment.rotation import rotate

DIFFERENTIABLE = [CutDiff(), Rotation(), Patch(), Scratch(), Stain(), Blur(), Warp()]
ALL = [*DIFFERENTIABLE, CutOut(), CutPaste()]


def some_images(n: int = 3, m: int = 12, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 3, m, m, dtype=torch.float64, generator=generator)


def float64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def algorithm_2(image: Tensor, s: float, r: float, g: float, mu: Tensor) -> Tensor:
    """Algorithm 2 for one image, with its matrices, pixel by pixel."""
    R = float64([[math.cos(g), -math.sin(g)], [math.sin(g), math.cos(g)]])
    S = float64([[s / r, 0.0], [0.0, s * r]])
    L = R @ S
    inverse = torch.linalg.inv(L @ L.T)
    m = image.shape[-1]
    out = torch.empty_like(image)
    for i in range(m):
        for j in range(m):
            offset = float64([(i + 0.5) / m, (j + 0.5) / m]) - mu
            p = torch.exp(-offset @ inverse @ offset)
            out[:, i, j] = torch.minimum(
                torch.maximum(image[:, i, j] - p, torch.zeros(3)), torch.ones(3)
            )
    return out


@pytest.mark.parametrize("area,ratio,angle", [(0.04, 1, 0), (0.02, 1.7, 0.4), (0.1, 0.6, -1.2)])
def test_cutdiff_equals_algorithm_2(area: float, ratio: float, angle: float) -> None:
    images, centers = some_images(), torch.rand(3, 2, dtype=torch.float64)
    a = torch.tensor([math.log(area), math.log(ratio), angle], dtype=torch.float64)
    got = cutdiff(images, a, centers)
    for image, mu, out in zip(images, centers, got, strict=True):
        torch.testing.assert_close(
            out, algorithm_2(image, math.sqrt(area), ratio, angle, mu), atol=1e-12, rtol=0
        )


def test_cutdiff_gradcheck() -> None:
    images = some_images(m=8) * 0.5 + 0.5  # no pixel sits on the clamp's kink
    centers = torch.rand(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    a = torch.tensor([math.log(0.05), 0.3, 0.4], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: cutdiff(images, a, centers), a)


@pytest.mark.parametrize("augmentation", DIFFERENTIABLE, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("start", [0, -1])
def test_gradcheck_at_the_starts(augmentation: Augmentation, start: int) -> None:
    images = 0.4 + 0.2 * some_images(n=2, m=7)  # strong patches still leave pixels within [0, 1]
    generator = torch.Generator().manual_seed(4)
    noise = augmentation.draw(2, generator).double()
    a = augmentation.initial_values()[start].double() + 0.01  # off the kinks of interpolation
    assert torch.autograd.gradcheck(lambda a: augmentation(images, a, noise), a.requires_grad_())


def test_a_patch_of_amplitude_minus_one_is_cutdiffs() -> None:
    a = float64([math.log(0.05), 0.3, 0.4, -1.0])
    centers = torch.rand(3, 2).double()
    torch.testing.assert_close(
        Patch()(some_images(), a, centers), cutdiff(some_images(), a[:3], centers)
    )


def test_a_patch_brightens_at_positive_and_darkens_at_negative_amplitude() -> None:
    grey, center = torch.full((1, 3, 33, 33), 0.5), torch.full((1, 2), 0.5)
    for amplitude in (-0.3, 0.0, 0.3):
        a = torch.tensor([math.log(0.02), 0.0, 0.0, amplitude])
        out = Patch()(grey, a, center)
        assert out[0, 0, 16, 16].item() == pytest.approx(0.5 + amplitude, abs=1e-3)
        assert out[0, 0, 0, 0].item() == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("turns", [0.0, 0.25, 0.5])
def test_a_scratch_is_as_long_and_wide_as_it_says(turns: float) -> None:
    grey, m = torch.full((1, 3, 200, 200), 0.5), 200
    a = torch.tensor([math.log(0.5), math.log(0.04), 0.4])
    noise = torch.tensor([[0.5, 0.5, turns]])
    visible = (Scratch()(grey, a, noise)[0, 0] - 0.5) > 0.4 / math.e
    rows, columns = visible.nonzero(as_tuple=True)
    points = torch.stack([rows, columns], 1).double() - (m - 1) / 2
    direction = float64([math.cos(math.pi * turns), math.sin(math.pi * turns)])
    along = points @ direction
    across = points @ float64([-direction[1], direction[0]])
    assert (along.max() - along.min()) / m == pytest.approx(0.5, abs=0.02)
    assert (across.max() - across.min()) / m == pytest.approx(0.04, abs=0.015)


def test_a_stain_shifts_each_channel_by_its_own_amount() -> None:
    grey, center = torch.full((1, 3, 33, 33), 0.5), torch.full((1, 2), 0.5)
    out = Stain()(grey, torch.tensor([math.log(0.02), 0.2, -0.1, 0.0]), center)
    assert out[0, :, 16, 16].tolist() == pytest.approx([0.7, 0.4, 0.5], abs=1e-3)


def test_a_blur_takes_detail_away_and_a_negative_one_adds_it() -> None:
    images, centers = some_images(n=4, m=32), torch.full((4, 2), 0.5).double()

    def detail(strength: float) -> float:
        out = Blur()(images, float64([math.log(0.2), strength]), centers)
        middle = out[:, :, 12:20, 12:20]
        return float((middle[..., 1:] - middle[..., :-1]).abs().mean())

    assert detail(1.0) < 0.6 * detail(0.0)
    assert detail(-0.5) > detail(0.0)
    flat = torch.full((1, 3, 20, 20), 0.3)
    torch.testing.assert_close(smoothed(flat), flat)


def test_a_warp_moves_the_middle_and_not_the_edge() -> None:
    ramp = torch.linspace(0, 1, 64)[:, None].expand(64, 64).expand(1, 3, 64, 64)
    a = torch.tensor([math.log(0.01), math.log(0.1)])
    out = Warp()(ramp, a, torch.tensor([[0.5, 0.5, 0.0]]))  # from further down
    difference = (out - ramp)[0, 0]
    assert difference[32, 32].item() == pytest.approx(0.1 * 64 / 63, abs=0.01)
    assert difference[0].abs().max() < 1e-3


def test_cutdiff_angle_has_no_gradient_at_ratio_one() -> None:
    a = torch.tensor([math.log(0.05), 0.0, 0.4], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(cutdiff(some_images(), a, torch.rand(3, 2).double()).sum(), a)
    assert abs(gradient[2]) < 1e-12 and abs(gradient[0]) > 1e-3


def test_cutdiff_puts_the_patch_at_row_then_column() -> None:
    white = torch.ones(1, 3, 32, 32)
    a = torch.tensor([math.log(0.01), 0.0, 0.0])
    dark = 1 - cutdiff(white, a, torch.tensor([[0.25, 0.75]]))[0, 0]
    row, column = divmod(int(dark.argmax()), 32)
    assert (row, column) in {(7, 23), (7, 24), (8, 23), (8, 24)}


def test_aspect_is_width_over_height() -> None:
    a = torch.tensor([math.log(0.02), math.log(4.0) / 2, 0.0])
    dark = 1 - cutdiff(torch.ones(1, 3, 64, 64), a, torch.full((1, 2), 0.5))[0, 0]
    visible = dark > 0.5
    height, width = visible.any(1).sum().item(), visible.any(0).sum().item()
    assert width / height == pytest.approx(4, rel=0.25)


@pytest.mark.parametrize("turns", [-2, -1, 1, 2, 3])
def test_describe_is_equal_for_all_names_of_one_ellipse(turns: int) -> None:
    a = torch.tensor([math.log(0.03), 0.4, 0.3], dtype=torch.float64)
    sign = -1 if turns % 2 else 1
    same = float64([math.log(0.03), sign * 0.4, 0.3 + turns * math.pi / 2])
    centers = torch.rand(3, 2).double()
    torch.testing.assert_close(
        cutdiff(some_images(), a, centers), cutdiff(some_images(), same, centers)
    )
    assert CutDiff().describe(same) == pytest.approx(CutDiff().describe(a))


@pytest.mark.parametrize("degrees", [-135, -46, -45, -44, 0, 44, 45, 46, 90, 180, 271])
def test_describe_folds_the_angle(degrees: float) -> None:
    angle = CutDiff().describe(torch.tensor([0.0, 0.5, math.radians(degrees)]).double())[
        "angle_deg"
    ]
    assert -45 - 1e-9 < angle <= 45 + 1e-9


@pytest.mark.parametrize("turns", [0, 1, 2, 3, -1])
def test_rotation_by_quarter_turns_equals_rot90(turns: int) -> None:
    images = some_images(m=9)
    turned = rotate(images, torch.tensor(turns * math.pi / 2, dtype=torch.float64))
    torch.testing.assert_close(turned, torch.rot90(images, turns, dims=(2, 3)), atol=1e-10, rtol=0)


def test_rotation_gradcheck() -> None:
    images = some_images(m=7)
    angle = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda angle: rotate(images, angle), angle)


@pytest.mark.parametrize("padding,corner", [("zeros", 0.0), ("border", 1.0), ("reflection", 1.0)])
def test_rotation_fills_corners_as_asked(padding: str, corner: float) -> None:
    white = torch.ones(1, 3, 16, 16)
    turned = Rotation(padding)(white, torch.tensor([math.pi / 4]), torch.zeros(1, 0))  # type: ignore[arg-type]
    assert turned[0, 0, 0, 0].item() == pytest.approx(corner)


@pytest.mark.parametrize("size", [0.002, 0.01, 0.03])
@pytest.mark.parametrize("log_ratio", [0.0, 0.4])
def test_area_is_the_share_that_is_visibly_changed(size: float, log_ratio: float) -> None:
    """Above 1/e of its peak, counted in pixels: pi times the paper's size."""
    m, center = 200, torch.tensor([[0.5, 0.5]]).double()
    grey = torch.full((1, 3, m, m), 0.5).double()
    patch = float64([math.log(size), log_ratio, 0.3, 0.4])
    for augmentation, a, peak in (
        (Patch(), patch, 0.4),
        (Stain(), float64([math.log(size), 0.3, 0.3, 0.3]), 0.3),
    ):
        changed = (augmentation(grey, a, center) - grey).abs()[0, 0] > peak / math.e
        counted = changed.double().mean().item()
        assert augmentation.describe(a)["area"] == pytest.approx(counted, rel=0.02)
    assert CutDiff().describe(patch[:3])["area"] == pytest.approx(math.pi * size)
    assert CutDiff().describe(patch[:3])["size"] == pytest.approx(size)
    assert Patch().describe(float64([math.log(0.9), 0.0, 0.0, 0.1]))["area"] == 1.0


def test_cutout_blackens_the_area_it_says() -> None:
    a = torch.tensor([math.log(0.09), math.log(2.0) / 2])
    out = CutOut()(torch.ones(1, 3, 100, 100), a, torch.tensor([[0.5, 0.5]]))
    black = out[0, 0] == 0
    assert black.float().mean().item() == pytest.approx(0.09, rel=0.05)
    assert black.any(0).sum() / black.any(1).sum() == pytest.approx(2, rel=0.1)


def test_cutpaste_copies_pixels_of_the_same_image() -> None:
    images = some_images(n=2, m=40)
    a = torch.tensor([math.log(0.06), 0.0]).double()
    noise = torch.tensor([[0.7, 0.6, 0.1, 0.2], [0.3, 0.3, 0.9, 0.4]]).double()
    out = CutPaste()(images, a, noise)
    for image, pasted in zip(images, out, strict=True):
        changed = (pasted != image).any(0)
        assert changed.float().mean().item() == pytest.approx(0.06, rel=0.1)
        rows, columns = changed.nonzero(as_tuple=True)
        patch = pasted[:, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        h, w = patch.shape[1:]
        windows = image.unfold(1, h, 1).unfold(2, w, 1)
        copies = (windows == patch[:, None, None]).all(-1).all(-1).all(0)
        assert copies.sum() == 1  # it stands, whole, in one other place


@pytest.mark.parametrize("augmentation", ALL, ids=lambda a: type(a).__name__)
def test_every_augmentation_keeps_the_protocol(augmentation: Augmentation) -> None:
    generator = torch.Generator().manual_seed(0)
    for method in ("initial_values", "random_value", "draw", "describe"):
        wanted = list(inspect.signature(getattr(Augmentation, method)).parameters)[1:]
        assert list(inspect.signature(getattr(augmentation, method)).parameters) == wanted
    images = some_images().float()
    for a in [*augmentation.initial_values(), augmentation.random_value(generator)]:
        assert a.shape == (len(augmentation.names),) and a.dtype == torch.float32
        noise = augmentation.draw(len(images), generator)
        assert len(noise) == len(images)
        out = augmentation(images, a, noise)
        assert out.shape == images.shape and out.dtype == images.dtype
        assert out.min() >= 0 and out.max() <= 1
        torch.testing.assert_close(out, augmentation(images, a, noise), rtol=0, atol=0)
        assert all(isinstance(value, float) for value in augmentation.describe(a).values())


def test_starts_are_the_papers() -> None:
    sizes = [CutDiff().describe(a)["size"] for a in CutDiff().initial_values()]
    assert sizes == pytest.approx([0.0001, 0.001, 0.01, 0.1], rel=1e-5)
    angles = [Rotation().describe(a)["angle_deg"] for a in Rotation().initial_values()]
    assert angles == pytest.approx([45, 135, 225, 315], rel=1e-5)


def test_random_values_lie_in_their_ranges() -> None:
    generator = torch.Generator().manual_seed(0)
    draws = [CutDiff().describe(CutDiff().random_value(generator)) for _ in range(300)]
    assert 0.0001 <= min(d["size"] for d in draws) < 0.0003
    assert 0.05 < max(d["size"] for d in draws) <= 0.1
    assert 0.25 <= min(d["aspect"] for d in draws) and max(d["aspect"] for d in draws) <= 4
    boxes = [CutOut().describe(CutOut().random_value(generator)) for _ in range(300)]
    assert all(0.0199 <= b["area"] <= 0.151 and 0.299 <= b["aspect"] <= 3.31 for b in boxes)


@pytest.mark.parametrize("inner", [CutDiff(), Rotation()], ids=["CutDiff", "Rotation"])
def test_perturbed_is_the_augmentation_at_a_plus_epsilon(inner: Augmentation) -> None:
    images = some_images(n=11)
    a = inner.initial_values()[1].double()
    perturbed = Perturbed(inner, scale=0.3)
    noise = perturbed.draw(11, torch.Generator().manual_seed(0)).double()
    k = len(inner.names)
    own, epsilon = noise[:, :-k], noise[:, -k:]
    speeds = torch.tensor(getattr(inner, "speeds", (1.0,))).double()
    wanted = torch.cat(
        [inner(images[i : i + 1], a + 0.3 * speeds * epsilon[i], own[i : i + 1]) for i in range(11)]
    )
    torch.testing.assert_close(perturbed(images, a, noise), wanted)
    # in chunks of any size, as the hypergradient takes them
    for size in (3, 5):
        parts = [
            perturbed(x, a, e) for x, e in zip(images.split(size), noise.split(size), strict=True)
        ]
        torch.testing.assert_close(torch.cat(parts), wanted)


def test_perturbations_are_balanced_and_of_the_wanted_size() -> None:
    noise = Perturbed(Rotation(), scale=0.5).draw(4000, torch.Generator().manual_seed(0))
    assert abs(float(noise.mean())) < 1e-6 and float(noise.std()) == pytest.approx(1, abs=0.1)
    assert torch.unique(noise, dim=0).shape[0] == 1000  # four images share one


def test_perturbed_gradcheck() -> None:
    images, perturbed = some_images(n=6, m=6), Perturbed(Rotation(), scale=0.3)
    noise = perturbed.draw(6, torch.Generator().manual_seed(0)).double()
    a = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: perturbed(images, a, noise), a)


def test_rotation_reflects_by_default() -> None:
    """No pixel of a turned image is darker than the darkest of the original."""
    images = 0.5 + 0.5 * some_images(m=16)
    for angle in (0.3, 0.8, 2.0):
        a = torch.tensor([angle], dtype=torch.float64)
        assert float(Rotation()(images, a, torch.zeros(len(images), 0)).min()) >= 0.5
        assert torch.equal(rotate(images, a[0]), rotate(images, a[0], "reflection"))
        assert float(Rotation("zeros")(images, a, torch.zeros(len(images), 0)).min()) == 0
