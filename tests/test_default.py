"""The default way: an encoder that stays as it is, families of augmentations, places."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from stssad import STSSAD, CutDiff, Patch, ResNet18, Scar, Settings
from stssad.augment import FAMILIES, Augmentation
from stssad.evidence import LEAST_Z, Evidence
from stssad.scorer import CalibratedScorer
from stssad.scoring import GaussianDensity
from stssad.starts import Event
from stssad.testbeds.synthetic import texture_crops
from stssad.val_loss import mean_distance_loss

pytest.importorskip("skimage", reason="textures need the extra `demo`")

BRIGHT = torch.tensor([math.log(0.02), 0.0, 0.0, 0.5])


def pictures(n: int, seed: int, size: int = 64) -> Tensor:
    return texture_crops("gravel", n, size, torch.Generator().manual_seed(seed))


def planted(pool: Tensor, augmentation: Augmentation, a: Tensor, n: int) -> Tensor:
    """The first n pictures get a defect."""
    noise = augmentation.draw(n, torch.Generator().manual_seed(9))
    return torch.cat([augmentation(pool[:n], a, noise), pool[n:]])


def auc(scores: np.ndarray, n: int) -> float:
    """Of the first n being the anomalies."""
    return float((scores[:n, None] > scores[None, n:]).mean())


@pytest.fixture(scope="module")
def bright() -> tuple[STSSAD, Tensor]:
    """Tuned to bright patches from a dark start alone."""
    pool = planted(pictures(40, 1), Patch(), BRIGHT, 10)
    dark = Patch(areas=(0.02,), amplitudes=(-0.2,))
    return STSSAD(dark).fit(pictures(80, 0), pool), pool


def test_a_bright_defect_is_found_from_a_dark_start(bright: tuple[STSSAD, Tensor]) -> None:
    model, _ = bright
    assert model.candidates_[0].initial["amplitude"] == pytest.approx(-0.2)
    assert model.learned_["family"] == "Patch" and model.learned_["amplitude"] > 0.2
    assert model.learned_["area"] == pytest.approx(0.02, rel=1.0)
    assert model.evidence_ is not None and model.evidence_.fits
    new = planted(pictures(40, 5), Patch(), BRIGHT, 20)
    assert auc(model.decision_function(new), 20) > 0.97


def test_the_score_says_how_much_stranger_than_normal_a_picture_is(
    bright: tuple[STSSAD, Tensor],
) -> None:
    model, _ = bright
    assert model.normal_scores_.mean() == pytest.approx(0, abs=1e-9)
    assert model.normal_scores_.std(ddof=1) == pytest.approx(1, abs=1e-6)
    fresh = model.decision_function(pictures(200, 77))
    assert abs(np.median(fresh)) < 0.8  # new normal pictures score like those
    assert (fresh > model.threshold_).mean() < 0.06


def test_heatmaps_show_where_and_share_one_scale(bright: tuple[STSSAD, Tensor]) -> None:
    model, _ = bright
    clean = pictures(6, 31)
    spot = Patch()(clean, BRIGHT, torch.full((6, 2), 0.25))
    found = model.heatmaps(torch.cat([spot, clean]))
    assert found.shape == (12, 64, 64) and found.min() >= 0 and found.max() <= 1
    row, column = np.unravel_index(found[:6].mean(axis=0).argmax(), (64, 64))
    assert abs(row - 16) <= 8 and abs(column - 16) <= 8
    assert found[6:].max() < 0.8 * found[:6].max(axis=(1, 2)).mean()  # clean ones stay cold
    one = model.heatmaps(spot[:1])  # alone it looks as among others
    np.testing.assert_allclose(one[0], found[0], atol=1e-4)


def test_saved_and_loaded_it_is_the_same(bright: tuple[STSSAD, Tensor], tmp_path: Path) -> None:
    model, pool = bright
    model.save(tmp_path)
    again = STSSAD.load(tmp_path)
    np.testing.assert_allclose(
        again.decision_function(pool), model.decision_function(pool), rtol=0, atol=1e-9
    )
    np.testing.assert_array_equal(again.heatmaps(pool[:2]), model.heatmaps(pool[:2]))
    assert again.learned_ == model.learned_ and again.evidence_ == model.evidence_
    assert again.threshold_ == model.threshold_


def test_the_same_seed_gives_the_same_whatever_the_processes() -> None:
    train, pool = pictures(30, 0), planted(pictures(16, 1), Patch(), BRIGHT, 5)
    settings = Settings.imagenet(max_iterations=2, val_augmented_samples=4)
    families = [Patch(areas=(0.02,)), Scar()]
    one, other, third = (
        STSSAD(families, settings=settings, seed=seed, jobs=jobs).fit(train, pool)
        for seed, jobs in ((0, 1), (0, 2), (1, 1))
    )
    np.testing.assert_array_equal(one.decision_scores_, other.decision_scores_)
    assert one.learned_ == other.learned_ and one.evidence_ == other.evidence_
    assert [c.a for c in one.candidates_] != [c.a for c in third.candidates_]


class Small(nn.Module):
    """A user's own encoder: fixed filters, averaged; no maps."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.filters = nn.Parameter(torch.randn(12, 3, 5, 5, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        out = nn.functional.conv2d(x, self.filters, stride=2)
        return torch.cat([out.mean((2, 3)), out.relu().mean((2, 3))], dim=1)


FAST = Settings.imagenet(max_iterations=4, smoothing=2, val_augmented_samples=8)


def test_clean_pools_give_no_evidence_and_the_plain_density() -> None:
    """The whole of it, tuning included, a hundred times."""
    quiet = 0
    for seed in range(100):
        train, pool = pictures(60, 2 * seed, 24), pictures(30, 2 * seed + 1, 24)
        families = [Patch(areas=(0.03,)), Scar()]
        model = STSSAD(families, Small(), FAST, seed=seed).fit(train, pool)
        assert model.evidence_ is not None
        if model.evidence_.z < LEAST_Z:
            quiet += 1
            Z = model.embed(pool)
            plain = GaussianDensity().fit(model.embed(train)).distance(Z)
            torch.testing.assert_close(model.scorer_.density.distance(Z), plain)
            assert "No augmentation fits" in model.evidence_.in_words("a patch")
    assert quiet >= 95


def test_an_encoder_of_ones_own_needs_no_maps(tmp_path: Path) -> None:
    train = pictures(60, 0, 32)
    pool = planted(pictures(40, 1, 32), Patch(), BRIGHT, 16)
    model = STSSAD([Patch()], Small(), FAST).fit(train, pool)
    assert model.heat_ is None
    with pytest.raises(ValueError, match="has no heatmaps"):
        model.heatmaps(pool)
    model.save(tmp_path)
    with pytest.raises(ValueError, match=r"pass it: STSSAD\.load"):
        STSSAD.load(tmp_path)
    again = STSSAD.load(tmp_path, encoder=Small())
    np.testing.assert_allclose(again.decision_function(pool), model.decision_scores_, atol=1e-9)


def test_a_fit_that_was_stopped_goes_on_to_the_same_end(tmp_path: Path) -> None:
    train, pool = pictures(40, 0, 24), planted(pictures(24, 1, 24), Patch(), BRIGHT, 8)
    settings = replace(FAST, max_iterations=8)

    def fit(progress: Callable[[Event], None] | None = None) -> STSSAD:
        return STSSAD([Patch(), Scar()], Small(), settings).fit(train, pool, progress, tmp_path)

    whole = STSSAD([Patch(), Scar()], Small(), settings).fit(train, pool)
    for stop_at in (3, 20, 14):  # in a first start, a later one, and while halves are tested
        n_seen = 0

        def stop(event: Event, stop_at: int = stop_at) -> None:
            nonlocal n_seen
            n_seen += 1
            if n_seen == stop_at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(stop)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert sizes and max(sizes) < 60_000  # what doesn't change isn't kept again and again
    again = fit()
    np.testing.assert_array_equal(again.decision_scores_, whole.decision_scores_)
    assert again.evidence_ == whole.evidence_ and again.learned_ == whole.learned_


def test_maps_must_belong_to_the_embedding() -> None:
    class Torn(Small):
        def feature_maps(self, x: Tensor) -> list[Tensor]:
            return [nn.functional.conv2d(x, self.filters, stride=2)]

        def pooled(self, maps: list[Tensor]) -> Tensor:
            return maps[0].mean((2, 3))

    with pytest.raises(ValueError, match="differs from what it returns"):
        STSSAD([Patch()], Torn(), FAST).fit(pictures(8, 0, 24), pictures(4, 1, 24))


def test_an_encoder_to_be_trained_is_refused_where_nothing_trains() -> None:
    with pytest.raises(ValueError, match="train nothing"):
        STSSAD(encoder=ResNet18(4), settings=FAST).fit(pictures(8, 0, 24), pictures(4, 1, 24))


def test_four_normal_pictures_are_enough_to_run_and_three_are_named() -> None:
    model = STSSAD([Patch()], Small(), FAST).fit(pictures(4, 0, 24), pictures(2, 1, 24))
    assert len(model.decision_scores_) == 2
    held = replace(FAST, holdout_share=0.3)
    with pytest.raises(ValueError, match="train holds 3 picture"):
        STSSAD([Patch()], Small(), held).fit(pictures(4, 0, 24), pictures(2, 1, 24))


def test_what_is_tuned_is_all_families_one_or_a_list() -> None:
    for given, names in (
        (None, [f.__name__ for f in FAMILIES]),
        (Patch(), ["Patch"]),
        ([CutDiff(), Scar()], ["CutDiff", "Scar"]),
    ):
        model = STSSAD(given, Small(), FAST)
        model._resolve()
        assert [type(f).__name__ for f in model.families_] == names
    with pytest.raises(ValueError, match="empty list"):
        STSSAD([]).fit(pictures(8, 0, 24), pictures(4, 1, 24))


def test_presets_of_the_paper_imply_its_encoder() -> None:
    model = STSSAD(settings=Settings.quick())
    model._resolve()
    assert type(model.encoder_).__name__ == "ResNet18"
    assert [type(f) for f in model.families_] == [CutDiff]
    assert model.val_loss_ is mean_distance_loss
    model = STSSAD()
    model._resolve()
    assert type(model.encoder_).__name__ == "EfficientNetLite0" and model.settings_.is_frozen


def test_any_validation_loss_may_tune_it() -> None:
    train, pool = pictures(30, 0, 24), planted(pictures(20, 1, 24), Patch(), BRIGHT, 8)
    model = STSSAD([Patch()], Small(), FAST, val_loss=mean_distance_loss).fit(train, pool)
    assert all(r.val_loss > 0.5 for r in model.candidates_[0].history)  # L_val, near 1


def test_the_stretch_is_the_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    Z, new = (torch.randn(n, 5, dtype=torch.float64, generator=generator) for n in (50, 8))
    shift = torch.randn(5, dtype=torch.float64, generator=generator)
    density = GaussianDensity(shift=shift, stretch=7.0).fit(Z)
    plain = GaussianDensity().fit(Z)
    assert plain.mean is not None and plain.cholesky is not None
    inverse = torch.linalg.inv(plain.cholesky)
    for z, found in zip(new, density.score(new), strict=True):
        w, u = inverse @ (z - plain.mean), inverse @ shift
        along = max(0.0, float(w @ u / u.norm()))
        wanted = float(w @ w) / 2 + 7 * along**2 / 2 + plain.least
        assert float(found) == pytest.approx(wanted)


def test_both_scores_count_alike(bright: tuple[STSSAD, Tensor]) -> None:
    """The combined score is made of two z-scores, each taken from normal pictures."""
    model, pool = bright
    scorer = model.scorer_
    assert isinstance(scorer, CalibratedScorer) and scorer.place is not None
    places = model.place_scores(pool)
    assert places is not None
    whole = np.log(scorer.density.distance(model.embed(pool)).numpy())
    place = np.log(places.numpy())
    z = [
        (x - scale.center) / scale.spread
        for x, scale in ((whole, scorer.whole), (place, scorer.place))
    ]
    wanted = (z[0] + z[1] - scorer.total.center) / scorer.total.spread
    np.testing.assert_allclose(model.decision_scores_, wanted, atol=1e-4)


def test_evidence_in_words() -> None:
    found = Evidence(0.6, 12.0, ("Scar", "Patch"))
    words = found.in_words("a thin stroke")
    assert "stretched in that direction" in words and "chose Scar and Patch" in words
    assert not replace(found, z=2.9).fits


def test_a_folder_is_fitted_scored_and_shown(tmp_path: Path) -> None:
    """The command line as a newcomer uses it, on few and small pictures."""
    from typer.testing import CliRunner

    from stssad.cli import app

    pool = planted(pictures(12, 1), Patch(), BRIGHT, 4)
    for name, images in (("good", pictures(20, 0)), ("pile", pool)):
        for i, x in enumerate(images):
            path = tmp_path / name / f"part{i % 2}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((x * 255).byte().permute(1, 2, 0).numpy()).save(path)
    run, few = tmp_path / "run", ["--max-iterations", "2", "--image-size", "64", "--jobs", "1"]
    words = ["fit", "--normal", str(tmp_path / "good"), "--unlabeled", str(tmp_path / "pile"),
             "--out", str(run), "--augmentation", "patch,scar", *few]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    page = (run / "report.html").read_text()
    assert "J = " in page and 'class="heat"' in page and "Scar" in page
    done = CliRunner().invoke(
        app,
        ["score", str(run), str(tmp_path / "pile"), "--out", str(tmp_path / "s.csv"),
         "--heatmaps", str(tmp_path / "heat")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    made = sorted(p.relative_to(tmp_path / "heat").as_posix()
                  for p in (tmp_path / "heat").rglob("*.png"))  # fmt: skip
    assert len(made) == 12 and "part0/0.png.png" in made
    with Image.open(tmp_path / "heat" / made[0]) as picture:
        assert picture.size == (256, 256)
