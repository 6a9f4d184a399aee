"""The pretrained method: a frozen encoder, augmentation types, evidence, memory bank."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.covariance import ledoit_wolf
from torch import Tensor, nn

from stssad import STSSAD, CutDiff, Patch, PretrainedSettings, Scratch
from stssad.augment import Augmentation
from stssad.encoders.efficientnet_lite import EfficientNetLite0
from stssad.encoders.encoding import encode
from stssad.experiments.testbeds.synthetic import texture_crops
from stssad.methods.defaults import resolve
from stssad.registry import DEFAULT_TYPES
from stssad.scoring.evidence import LEVEL
from stssad.scoring.gaussian import GaussianDensity, ImageGaussian
from stssad.scoring.score import PretrainedScore
from stssad.tuning.progress import Event, RestartEvent
from stssad.tuning.val_loss import mean_distance_loss

pytest.importorskip("skimage", reason="textures need the extra `demo`")

BRIGHT = torch.tensor([math.log(0.02), 0.0, 0.0, 0.5])


def some_images(n: int, seed: int, size: int = 64) -> Tensor:
    return texture_crops("gravel", n, size, torch.Generator().manual_seed(seed))


def planted(pool: Tensor, augmentation: Augmentation, a: Tensor, n: int) -> Tensor:
    """The first n images get a defect."""
    noise = augmentation.draw(n, torch.Generator().manual_seed(9))
    return torch.cat([augmentation(pool[:n], a, noise), pool[n:]])


def auc(scores: np.ndarray, n: int) -> float:
    """Of the first n being the anomalies."""
    return float((scores[:n, None] > scores[None, n:]).mean())


@pytest.fixture(scope="module")
def bright() -> tuple[STSSAD, Tensor]:
    """Tuned to bright patches from a dark start alone."""
    pool = planted(some_images(40, 1), Patch(), BRIGHT, 10)
    dark = Patch(sizes=(0.02,), amplitudes=(-0.2,))
    return STSSAD(augmentation=dark, engine="torch").fit(some_images(80, 0), pool), pool


def test_a_bright_defect_is_found_from_a_dark_start(bright: tuple[STSSAD, Tensor]) -> None:
    model, _ = bright
    assert model.candidates_[0].initial["amplitude"] == pytest.approx(-0.2)
    assert model.learned_["type"] == "Patch" and model.learned_["amplitude"] > 0.2
    assert model.learned_["area"] == pytest.approx(math.pi * 0.02, rel=1.0)
    assert model.evidence_ is not None and model.evidence_.fits
    new = planted(some_images(40, 5), Patch(), BRIGHT, 20)
    assert auc(model.decision_function(new), 20) > 0.97


def test_the_score_says_how_much_more_anomalous_than_usual_an_image_is(
    bright: tuple[STSSAD, Tensor],
) -> None:
    model, _ = bright
    assert model.normal_scores_.mean() == pytest.approx(0, abs=1e-9)
    assert model.normal_scores_.std(ddof=1) == pytest.approx(1, abs=1e-6)
    fresh = model.decision_function(some_images(200, 77))
    assert abs(np.median(fresh)) < 0.8  # new normal images score like those
    assert (fresh > model.threshold_).mean() < 0.06


def test_anomaly_maps_show_where_and_share_one_scale(bright: tuple[STSSAD, Tensor]) -> None:
    model, _ = bright
    clean = some_images(6, 31)
    spot = Patch()(clean, BRIGHT, torch.full((6, 2), 0.25))
    found = model.anomaly_maps(torch.cat([spot, clean]))
    assert found.shape == (12, 64, 64) and found.min() >= 0 and found.max() <= 1
    row, column = np.unravel_index(found[:6].mean(axis=0).argmax(), (64, 64))
    assert abs(row - 16) <= 8 and abs(column - 16) <= 8
    assert found[6:].max() < 0.8 * found[:6].max(axis=(1, 2)).mean()  # clean ones stay cold
    one = model.anomaly_maps(spot[:1])  # alone it looks as among others
    np.testing.assert_allclose(one[0], found[0], atol=1e-4)


@pytest.mark.bit_identical
def test_saved_and_loaded_it_is_the_same(bright: tuple[STSSAD, Tensor], tmp_path: Path) -> None:
    model, pool = bright
    model.save(tmp_path)
    again = STSSAD.load(tmp_path)
    np.testing.assert_array_equal(again.decision_function(pool), model.decision_function(pool))
    np.testing.assert_array_equal(again.decision_function(pool), model.decision_scores_)
    np.testing.assert_array_equal(again.anomaly_maps(pool[:2]), model.anomaly_maps(pool[:2]))
    assert again.learned_ == model.learned_ and again.evidence_ == model.evidence_
    assert again.threshold_ == model.threshold_


def test_the_same_seed_gives_the_same_whatever_the_processes() -> None:
    train, pool = some_images(30, 0), planted(some_images(16, 1), Patch(), BRIGHT, 5)
    settings = PretrainedSettings(max_iterations=2, val_augmented_samples=4)
    types = [Patch(sizes=(0.02,)), Scratch()]
    one, other, third = (
        STSSAD("pretrained", types, settings=settings, seed=seed, jobs=jobs).fit(train, pool)
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


FAST = PretrainedSettings(max_iterations=4, smoothing=2, val_augmented_samples=8)


def image_part(model: STSSAD) -> ImageGaussian:
    score = model.model_.scorer
    assert isinstance(score, PretrainedScore)
    return score.gaussian


@pytest.mark.slow
def test_clean_pools_give_no_evidence() -> None:
    """The whole of it, tuning included, a hundred times: p is at most what it says."""
    found = []
    for seed in range(100):
        train, pool = some_images(60, 2 * seed, 24), some_images(30, 2 * seed + 1, 24)
        types = [Patch(sizes=(0.03,)), Scratch()]
        model = STSSAD("pretrained", types, Small(), FAST, seed=seed).fit(train, pool)
        assert model.evidence_ is not None
        found.append(model.evidence_.p_value)
    assert sum(p <= LEVEL for p in found) <= 4  # by the binomial's 99 % quantile
    assert sum(p <= 0.1 for p in found) <= 18


def test_outliers_teach_the_score_a_direction(bright: tuple[STSSAD, Tensor]) -> None:
    model, pool = bright
    lesson, density = model.lesson_, image_part(model).density
    assert lesson is not None and 8 <= lesson.n_outliers <= 14 and lesson.agreement > 0.2
    assert float(density.weight) == pytest.approx(100 * lesson.agreement)
    untaught = model.workings_.untaught
    assert isinstance(untaught, PretrainedScore)
    before = untaught(encode(model.model_.encoder, pool)).scores.numpy()
    after = model.decision_scores_
    gaps = [scores[:10].mean() - scores[10:].mean() for scores in (before, after)]
    assert gaps[1] > 1.5 * gaps[0] > 0


def test_clean_pools_teach_next_to_nothing(bright: tuple[STSSAD, Tensor]) -> None:
    """The pool of `bright` without its defects: with them it teaches a lot."""
    few = PretrainedSettings(max_iterations=2, smoothing=2, val_augmented_samples=4)
    model = STSSAD(augmentation=Patch(sizes=(0.02,)), settings=few, engine="torch").fit(
        some_images(80, 0), some_images(40, 1)
    )
    with_defects, _ = bright
    assert model.lesson_ is not None and with_defects.lesson_ is not None
    assert model.lesson_.weight < 10 and with_defects.lesson_.weight > 30
    assert model.contamination_ is not None and with_defects.contamination_ is not None
    assert model.contamination_.looks_clean and not with_defects.contamination_.looks_clean


def test_an_encoder_of_ones_own_needs_no_maps(tmp_path: Path) -> None:
    train = some_images(60, 0, 32)
    pool = planted(some_images(40, 1, 32), Patch(), BRIGHT, 16)
    model = STSSAD("pretrained", [Patch()], Small(), FAST).fit(train, pool)
    assert model.map_scale_ is None
    with pytest.raises(ValueError, match="has no anomaly maps"):
        model.anomaly_maps(pool)
    model.save(tmp_path)
    with pytest.raises(ValueError, match=r"pass it: STSSAD\.load"):
        STSSAD.load(tmp_path)
    again = STSSAD.load(tmp_path, encoder=Small())
    np.testing.assert_allclose(again.decision_function(pool), model.decision_scores_, atol=1e-9)


@pytest.mark.bit_identical
def test_a_fit_that_was_stopped_goes_on_to_the_same_end(tmp_path: Path) -> None:
    train, pool = some_images(40, 0, 24), planted(some_images(24, 1, 24), Patch(), BRIGHT, 8)
    settings = replace(FAST, max_iterations=8)

    def fit(progress: Callable[[Event], None] | None = None) -> STSSAD:
        return STSSAD("pretrained", [Patch(), Scratch()], Small(), settings).fit(
            train, pool, progress, tmp_path
        )

    whole = STSSAD("pretrained", [Patch(), Scratch()], Small(), settings).fit(train, pool)
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
        trainable = False

        def features(self, images: Tensor) -> list[Tensor]:
            return [nn.functional.conv2d(images, self.filters, stride=2)]

        def pooled(self, maps: list[Tensor]) -> Tensor:
            return maps[0].mean((2, 3))

    with pytest.raises(ValueError, match="differs from what it returns"):
        STSSAD(encoder=Torn(), settings=FAST).fit(some_images(8, 0, 24), some_images(4, 1, 24))


def test_four_normal_images_are_enough_to_run_and_three_are_named() -> None:
    model = STSSAD("pretrained", [Patch()], Small(), FAST).fit(
        some_images(4, 0, 24), some_images(2, 1, 24)
    )
    assert len(model.decision_scores_) == 2
    held = replace(FAST, holdout_share=0.3)
    with pytest.raises(ValueError, match=r"train holds 4 image.* at least 4 that aren't held out"):
        STSSAD("pretrained", [Patch()], Small(), held).fit(
            some_images(4, 0, 24), some_images(2, 1, 24)
        )


def test_what_is_tuned_is_all_types_one_or_a_list() -> None:
    for given, names in (
        (None, list(DEFAULT_TYPES)),
        (Patch(), ["Patch"]),
        ([CutDiff(), Scratch()], ["CutDiff", "Scratch"]),
    ):
        _, choices = resolve("pretrained", given, Small())
        assert [type(each).__name__ for each in choices.augmentations] == names


def test_each_method_has_its_own_defaults() -> None:
    _, choices = resolve("paper")
    assert type(choices.encoder).__name__ == "ResNet18"
    assert [type(each) for each in choices.augmentations] == [CutDiff]
    assert choices.val_loss is mean_distance_loss
    _, choices = resolve("pretrained")
    assert type(choices.encoder).__name__ == "EfficientNetLite0"
    assert choices.settings == PretrainedSettings()


class Counting(EfficientNetLite0):
    """Counts the images that pass through it."""

    n_encoded = 0

    def features(self, images: Tensor) -> list[Tensor]:
        Counting.n_encoded += len(images)
        return super().features(images)


def test_every_image_is_encoded_once_in_a_fit() -> None:
    """Beside the empty one that an encoder is tried on, and the augmented ones."""
    few = PretrainedSettings(max_iterations=2, val_augmented_samples=3, smoothing=2)
    n_train, n_pool, n_restarts = 12, 7, 1
    augmentation = Patch(sizes=(0.02,))
    STSSAD("pretrained", augmentation, Counting(), few).fit(
        some_images(n_train, 0), some_images(n_pool, 1)
    )
    # a restart: two mirror images, two iterations, and its shift
    restarts = n_restarts * (4 * 3 + n_train)
    # a half: its choice by mirror images; then it begins like a restart, with one iteration
    halves = 2 * (2 * 3 + 3 * 3 + n_train // 2)
    # forward and pooled(features) of the empty image; every normal image twice in other light
    assert Counting.n_encoded == 3 * n_train + n_pool + restarts + halves + 2


def test_without_a_pool_nothing_is_tuned_and_it_says_so(tmp_path: Path) -> None:
    train = some_images(24, 0)
    model = STSSAD().fit(train)
    assert model.learned_ == {} and model.candidates_ == [] and model.contamination_ is None
    assert model.evidence_ is None and "nothing was tuned" in model.warnings_[0]
    np.testing.assert_array_equal(model.decision_scores_, model.normal_scores_)
    new = planted(some_images(20, 5), Patch(), BRIGHT, 10)
    assert auc(model.decision_function(new), 10) > 0.9
    assert model.anomaly_maps(new[:2]).shape == (2, 64, 64)
    model.save(tmp_path)
    np.testing.assert_array_equal(STSSAD.load(tmp_path).predict(new), model.predict(new))
    assert len(STSSAD().fit_predict(train)) == 24


def test_it_runs_in_a_pipeline_of_scikit_learns() -> None:
    from sklearn.pipeline import make_pipeline

    pipeline = make_pipeline(STSSAD(encoder=Small(), settings=FAST))
    labels = pipeline.fit_predict(some_images(20, 0, 24).numpy())
    assert labels.shape == (20,)
    assert pipeline.predict(some_images(3, 1, 24).numpy()).shape == (3,)


def test_any_validation_loss_may_tune_it() -> None:
    train, pool = some_images(30, 0, 24), planted(some_images(20, 1, 24), Patch(), BRIGHT, 8)
    values = []

    def recorded(Z_trn: Tensor, Z_aug: Tensor, Z_val: Tensor) -> Tensor:
        loss = mean_distance_loss(Z_trn, Z_aug, Z_val)
        values.append(float(loss.detach()))
        return loss

    own, usual = (
        STSSAD("pretrained", Patch(sizes=(0.02,)), Small(), FAST, val_loss=val_loss).fit(
            train, pool
        )
        for val_loss in (recorded, None)
    )
    losses = [r.val_loss for r in own.candidates_[0].history]
    assert losses and set(losses) <= set(values)  # L_val, as it was computed
    assert own.candidates_[0].a != usual.candidates_[0].a  # and its gradient was followed


def test_the_weight_along_the_direction_is_the_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    Z, new = (torch.randn(n, 5, dtype=torch.float64, generator=generator) for n in (50, 8))
    shift = torch.randn(5, dtype=torch.float64, generator=generator)
    density = GaussianDensity(shift=shift, weight=7.0).fit(Z)
    plain = GaussianDensity().fit(Z)
    mean = Z.mean(dim=0)
    inverse = torch.linalg.inv(torch.linalg.cholesky(torch.from_numpy(ledoit_wolf(Z.numpy())[0])))
    for z, found in zip(new, density.score(new), strict=True):
        w, u = inverse @ (z - mean), inverse @ shift
        along = max(0.0, float(w @ u / u.norm()))
        wanted = float(w @ w) / 2 + 7 * along**2 / 2 + plain.least
        assert float(found) == pytest.approx(wanted)


def test_both_parts_count_alike(bright: tuple[STSSAD, Tensor]) -> None:
    """The score is made of two z-scores, each taken from normal images."""
    model, pool = bright
    scorer, parts = model.model_.scorer, model.score_images(pool).parts
    assert isinstance(scorer, PretrainedScore) and len(parts) == 2
    z = [
        (part.log() - center) / spread
        for part, center, spread in zip(parts, scorer.centers, scorer.spreads, strict=True)
    ]
    wanted = (z[0] + z[1] - scorer.total[0]) / scorer.total[1]
    np.testing.assert_allclose(model.decision_scores_, wanted.numpy(), atol=1e-9)


def test_evidence_is_described_in_sentences(bright: tuple[STSSAD, Tensor], tmp_path: Path) -> None:
    from stssad.report.presentation import format_evidence, format_finding
    from stssad.runs.summary import read_summary

    model, _ = bright
    model.save(tmp_path)
    summary = read_summary(tmp_path)
    assert summary.evidence is not None and summary.evidence.fits
    assert "up-weighted along it" in format_evidence(summary)
    assert "chose Patch and Patch" in format_evidence(summary)
    assert "a dark or bright patch: area" in format_finding(summary)
    unfit = replace(summary, evidence=replace(summary.evidence, p_value=2 * LEVEL))
    assert format_evidence(unfit).startswith("No augmentation fits")
    assert "No augmentation was found that resembles the anomalies" in format_finding(unfit)


def test_a_folder_is_fitted_scored_and_shown(tmp_path: Path) -> None:
    """The command line as a newcomer uses it, on few and small images."""
    from typer.testing import CliRunner

    from stssad.cli import app

    pool = planted(some_images(12, 1), Patch(), BRIGHT, 4)
    for name, saved in (("good", some_images(20, 0)), ("pool", pool)):
        for i, x in enumerate(saved):
            path = tmp_path / name / f"part{i % 2}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((x * 255).byte().permute(1, 2, 0).numpy()).save(path)
    run, few = tmp_path / "run", ["--max-iterations", "2", "--image-size", "64", "--jobs", "1"]
    words = [
        "fit",
        "--normal",
        str(tmp_path / "good"),
        "--unlabeled",
        str(tmp_path / "pool"),
        "--out",
        str(run),
        "--augmentation",
        "patch,scratch",
        *few,
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    page = (run / "report.html").read_text()
    assert "J = " in page and '"map": "' in page and "Scratch" in page
    done = CliRunner().invoke(
        app,
        [
            "score",
            str(run),
            str(tmp_path / "pool"),
            "--out",
            str(tmp_path / "s.csv"),
            "--heatmaps",
            str(tmp_path / "heat"),
        ],
    )
    assert done.exit_code == 0, done.output
    made = sorted(
        p.relative_to(tmp_path / "heat").as_posix() for p in (tmp_path / "heat").rglob("*.png")
    )
    assert len(made) == 12 and "part0/0.png" in made
    with Image.open(tmp_path / "heat" / made[0]) as image:
        assert image.size == (256, 256)


class StoppedError(Exception):
    """In the place of a kill."""


def test_an_explanation_that_was_stopped_goes_on_in_a_loaded_model(tmp_path: Path) -> None:
    """From its restarts' checkpoints, to what it would have come to."""
    train, pool = some_images(30, 0, 48), planted(some_images(20, 1, 48), Patch(), BRIGHT, 6)
    few = PretrainedSettings(max_iterations=3, smoothing=2, val_augmented_samples=4)

    def make() -> STSSAD:
        return STSSAD(augmentation=Patch(sizes=(0.02, 0.05)), settings=few, engine="torch")

    def stop(event: Event) -> None:
        if isinstance(event, RestartEvent) and event.number == 1:  # the first is done
            raise StoppedError

    checkpoints, run = tmp_path / "checkpoints", tmp_path / "run"
    with pytest.raises(StoppedError):
        make().fit(train, pool, stop, checkpoints, on_scored=lambda model: model.save(run))
    assert list(checkpoints.iterdir())
    again, whole = STSSAD.load(run), make().fit(train, pool)
    again.explain_pool(train, pool, checkpoints=checkpoints)
    assert again.learned_ == whole.learned_ and again.evidence_ == whole.evidence_
    assert [c.a for c in again.candidates_] == [c.a for c in whole.candidates_]
