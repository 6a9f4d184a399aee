"""Other light: copies that show what it does, and scores and warnings that don't take it for a
defect."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from stssad import STSSAD, Patch, PretrainedSettings
from stssad.augment.light import GAIN, GAMMA, OFFSET, RAMP, draw_light, ramp, relit
from stssad.experiments.testbeds.light import LIGHTS
from stssad.experiments.testbeds.synthetic import texture_crops
from stssad.images.reading import Reading
from stssad.images.source import find_images, read_images
from stssad.scoring.conditions import find_differences
from stssad.scoring.nuisance import leading_directions, without

FEW = PretrainedSettings(max_iterations=2, val_augmented_samples=4, smoothing=2)


def textured(n: int, seed: int, size: int = 64) -> Tensor:
    pytest.importorskip("skimage", reason="textures need the extra `demo`")
    return texture_crops("gravel", n, size, torch.Generator().manual_seed(seed))


def test_relit_images_are_the_formula() -> None:
    images, noise = torch.rand(3, 3, 8, 8), draw_light(3, torch.Generator().manual_seed(0))
    found = relit(images, noise)
    for image, (g, y, o, s, t), made in zip(images, noise.tolist(), found, strict=True):
        for i, j in ((0, 0), (7, 2), (3, 6)):
            x, along = -1 + 2 * j / 7, -1 + 2 * i / 7
            c, d = math.cos(2 * math.pi * t), math.sin(2 * math.pi * t)
            slope = (x * c + along * d) / (abs(c) + abs(d))
            lit = image[:, i, j] * (GAIN[0] + (GAIN[1] - GAIN[0]) * g) * (1 + RAMP * s * slope)
            curved = lit.clamp(0, 1) ** (GAMMA[0] + (GAMMA[1] - GAMMA[0]) * y)
            wanted = (curved + OFFSET[0] + (OFFSET[1] - OFFSET[0]) * o).clamp(0, 1)
            torch.testing.assert_close(made[:, i, j], wanted, atol=1e-5, rtol=1e-5)


def test_a_ramp_goes_from_one_side_to_the_other() -> None:
    found = ramp(9, torch.tensor([0.0, 0.25, 0.125])[:, None, None, None])
    assert float(found.min()) == pytest.approx(-1) and float(found.max()) == pytest.approx(1)
    assert float(found[0, 0, 4, 0]) == pytest.approx(-1)  # from left to right
    assert float(found[1, 0, 8, 4]) == pytest.approx(1)  # from top to bottom
    assert float(found[2, 0, 0, 0]) == pytest.approx(-1)  # from corner to corner


@pytest.mark.parametrize("n", [5, 40])
def test_leading_directions_are_the_largest_and_orthonormal(n: int) -> None:
    generator = torch.Generator().manual_seed(0)
    strong = torch.linalg.qr(torch.randn(12, 2, generator=generator))[0].T
    changes = 20 * torch.randn(n, 2, generator=generator) @ strong
    changes += 0.01 * torch.randn(n, 12, generator=generator)
    found = leading_directions(changes, 2)
    torch.testing.assert_close(found @ found.T, torch.eye(2), atol=1e-4, rtol=0)
    assert float(without(strong, found).norm()) < 0.01
    assert leading_directions(changes[:0], 3).shape == (0, 12)
    rows = torch.randn(4, 12, generator=generator)
    assert torch.equal(without(rows, leading_directions(changes[:0], 3)), rows)


@pytest.mark.parametrize("gain", [0.8, 1.2])
def test_normal_images_in_other_light_raise_no_alarm(gain: float) -> None:
    train, pool, new = (textured(n, seed) for n, seed in ((100, 0), (30, 1), (60, 2)))
    model = STSSAD(augmentation=Patch(sizes=(0.02,)), settings=FEW).fit(train, pool)
    lit = model.decision_function((new * gain).clamp(0, 1))
    plain = model.decision_function(new)
    assert (lit > model.threshold_).mean() <= 0.05
    assert abs(np.median(lit) - np.median(plain)) < 1.0
    inside = 0.2 + 0.6 * torch.rand(60, 2, generator=torch.Generator().manual_seed(0))
    spotted = Patch()(new, torch.tensor([math.log(0.02), 0.0, 0.0, -0.8]), inside)
    assert (model.decision_function((spotted * gain).clamp(0, 1)) > model.threshold_).mean() > 0.9


def test_a_pool_in_other_light_is_told_with_numbers() -> None:
    train, pool = textured(80, 0), textured(40, 1)
    assert find_differences(train, pool) == []
    dark = find_differences(train, pool * 0.7)
    assert "brightness" in [d.name for d in dark]
    found = next(d for d in dark if d.name == "brightness")
    assert found.pool == pytest.approx(0.7 * found.normal, rel=0.1) and found.share > 0.5
    blurred = torch.nn.functional.avg_pool2d(pool, 5, 1, 2)
    assert "sharpness" in [d.name for d in find_differences(train, blurred)]
    blue = pool * torch.tensor([0.9, 1.0, 1.1])[:, None, None]
    assert "colour" in [d.name for d in find_differences(train, blue.clamp(0, 1))]


def test_defects_are_not_told_as_light() -> None:
    """Half of the pool has a dark patch over a tenth of the image."""
    train, pool = textured(80, 0), textured(40, 1)
    where = torch.rand(20, 2, generator=torch.Generator().manual_seed(0))
    spot = Patch()(pool[:20], torch.tensor([math.log(0.03), 0.0, 0.0, -0.9]), where)
    assert find_differences(train, torch.cat([spot, pool[20:]])) == []


def test_the_warning_reaches_the_user() -> None:
    train, pool = textured(60, 0), textured(30, 1) * 0.7
    model = STSSAD(augmentation=Patch(sizes=(0.02,)), settings=FEW).fit(train, pool)
    warned = [w for w in model.warnings_ if "darker than normal images" in w]
    assert len(warned) == 1 and "mean grey" in warned[0]


@pytest.mark.slow
def test_real_bottles_in_the_dark_raise_no_alarm() -> None:
    """20 % darker, which flagged every normal bottle before light was left out."""
    if "STSSAD_DATA" not in os.environ:
        pytest.skip("no real images: set STSSAD_DATA")
    folder = Path(os.environ["STSSAD_DATA"]) / "mvtec/bottle"
    if not folder.is_dir():
        pytest.skip("no MVTec AD bottle in STSSAD_DATA")
    train, good, broken = (
        read_images(find_images(folder / part), Reading(256))[0]
        for part in ("train/good", "test/good", "test/broken_small")
    )
    darker = LIGHTS["20 % darker"]
    pool = darker(torch.cat([good[:10], train[:30], broken[:4]]))
    model = STSSAD(augmentation=Patch(sizes=(0.02,)), settings=FEW, jobs=2).fit(train[30:], pool)
    assert model.predict(darker(good[10:])).sum() <= 1
    assert model.predict(darker(broken[4:])).mean() > 0.8
    assert any("darker" in warning for warning in model.warnings_)
