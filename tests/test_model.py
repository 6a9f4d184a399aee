"""The estimator: repeatable, whatever the number of processes; saved, loaded, used as others'."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import stssad
from stssad import STSSAD, CutDiff, PretrainedSettings, ResNet18, Rotation, Settings
from stssad.methods.paper_candidate import PaperCandidate, choose
from stssad.tuning.progress import Event
from stssad.tuning.val_loss import mean_distance_loss, mmd_loss

TINY = Settings(
    image_size=32,
    width=4,
    batch_size=8,
    warm_start_epochs=1,
    max_iterations=3,
    val_train_samples=10,
    val_augmented_samples=6,
    val_pool_samples=None,
    smoothing=2,
)
GENERATOR = torch.Generator().manual_seed(0)
TRAIN = torch.rand(20, 3, 32, 32, generator=GENERATOR) * 0.5 + 0.3
POOL = torch.rand(12, 3, 32, 32, generator=GENERATOR) * 0.5 + 0.3
NEW = torch.rand(9, 3, 32, 32, generator=GENERATOR)


@pytest.fixture(scope="module")
def model() -> STSSAD:
    return STSSAD("paper", settings=TINY).fit(TRAIN, POOL)


def same(one: STSSAD, other: STSSAD) -> bool:
    scores = np.array_equal(one.decision_function(NEW), other.decision_function(NEW))
    return scores and same_weights(one, other) and one.learned_ == other.learned_


def same_weights(one: STSSAD, other: STSSAD) -> bool:
    mine, theirs = one.model_.state_dict(), other.model_.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)


def test_fit_gives_what_the_readme_says(model: STSSAD) -> None:
    assert set(model.learned_) == {"area", "size", "aspect", "angle_deg"}
    assert len(model.candidates_) == 4
    assert [c.initial["size"] for c in model.candidates_] == pytest.approx(
        [0.0001, 0.001, 0.01, 0.1], rel=1e-4
    )
    assert all(len(c.history) == 3 and c.score_variance > 0 for c in model.candidates_)
    scores = model.decision_function(NEW)
    assert scores.shape == (9,) and scores.dtype == np.float64
    np.testing.assert_array_equal(model.predict(NEW), scores > model.threshold_)
    np.testing.assert_array_equal(model.decision_scores_, model.decision_function(POOL))


def test_chosen_start_has_the_largest_score_variance_of_those_that_learned(model: STSSAD) -> None:
    learned = [c for c in model.candidates_ if not c.collapsed] or model.candidates_
    assert model.chosen_ == max(learned, key=lambda c: c.score_variance).number


def candidate(
    n: int, variance: float, best_loss: float, last_loss: float, change: float = 2.0
) -> PaperCandidate:
    """One whose L_trn was best_loss around its best state, and last_loss at the end."""
    return PaperCandidate(
        n, "CutDiff", {}, {}, [], variance, [], 0, best_loss, 1.0, last_loss, [], [], 0.0, change
    )


def test_a_collapsed_start_is_chosen_only_if_all_are() -> None:
    never_learned, shrank = candidate(0, 9.0, math.log(2), 0.69), candidate(1, 8.0, 0.1, 0.7)
    learned, better = candidate(2, 2.0, 0.1, 0.1), candidate(3, 3.0, 0.2, 0.1)
    identity = candidate(4, 7.0, 0.3, 0.3, change=0.1)  # distinguished, but hardly changed
    assert choose([never_learned, shrank, learned, better, identity]) == 3
    assert choose([never_learned, shrank]) == 0


def test_the_same_seed_gives_the_same_model_twice(model: STSSAD) -> None:
    assert same(model, STSSAD("paper", settings=TINY).fit(TRAIN, POOL))


def test_another_seed_gives_another_model(model: STSSAD) -> None:
    assert not same(model, STSSAD("paper", settings=TINY, seed=1).fit(TRAIN, POOL))


@pytest.mark.parametrize("jobs", [pytest.param(2, marks=pytest.mark.bit_identical), 3])
def test_the_same_model_under_any_number_of_jobs(model: STSSAD, jobs: int) -> None:
    events: list[Event] = []
    parallel = STSSAD("paper", settings=TINY, jobs=jobs).fit(TRAIN, POOL, events.append)
    assert same(model, parallel)
    assert {e.number for e in events} == {0, 1, 2, 3}
    assert len(events) == 4 * (TINY.warm_start_epochs + TINY.max_iterations)


def test_jobs_work_in_a_script_without_a_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, stssad\n"
        "settings = stssad.Settings(width=4, batch_size=8, warm_start_epochs=1, max_iterations=1)\n"
        "model = stssad.STSSAD('paper', settings=settings, jobs=2)\n"
        "x = torch.rand(8, 3, 32, 32)\n"
        "print(len(model.fit(x, x).candidates_))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4"]


@pytest.mark.bit_identical
def test_ambient_threads_dont_change_the_fit_and_are_left_as_they_were(model: STSSAD) -> None:
    torch.set_num_threads(2)
    try:
        again = STSSAD("paper", settings=TINY).fit(TRAIN, POOL)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert same_weights(model, again)


@pytest.mark.bit_identical
def test_a_loaded_model_gives_the_same_scores_to_the_bit(model: STSSAD, tmp_path: Path) -> None:
    model.save(tmp_path / "run")
    loaded = STSSAD.load(tmp_path / "run")
    assert same(model, loaded)
    assert loaded.threshold_ == model.threshold_
    assert loaded.candidates_ == model.candidates_
    assert loaded.settings == model.choices_.settings
    np.testing.assert_array_equal(loaded.decision_scores_, model.decision_scores_)
    assert sorted(os.listdir(tmp_path / "run")) == ["model.json", "model.safetensors"]
    json.loads((tmp_path / "run" / "model.json").read_text())


def test_rotation_and_another_loss_survive_saving(tmp_path: Path) -> None:
    settings = replace(TINY, max_iterations=1)
    fitted = STSSAD("paper", Rotation("border"), ResNet18(4), settings, 3, mmd_loss).fit(
        TRAIN, POOL
    )
    fitted.save(tmp_path)
    loaded = STSSAD.load(tmp_path)
    assert isinstance(loaded.augmentation, Rotation) and loaded.augmentation.padding == "border"
    assert loaded.val_loss is mmd_loss and loaded.seed == 3
    assert same(fitted, loaded)


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.mean((2, 3)))  # type: ignore[no-any-return]


class OwnPatch(CutDiff):
    """With something that JSON can't hold."""

    def __init__(self) -> None:
        super().__init__(sizes=np.array([0.01, 0.1]))
        self.secret = torch.zeros(3)


def test_an_augmentation_of_ones_own_is_saved_and_passed_again(tmp_path: Path) -> None:
    fitted = STSSAD("paper", OwnPatch(), settings=replace(TINY, max_iterations=1)).fit(TRAIN, POOL)
    fitted.save(tmp_path)
    with pytest.raises(ValueError, match=r"the augmentation 'OwnPatch', .* pass it"):
        STSSAD.load(tmp_path)
    assert same(fitted, STSSAD.load(tmp_path, augmentation=OwnPatch()))


def test_an_encoder_of_ones_own_is_passed_again_when_loading(tmp_path: Path) -> None:
    fitted = STSSAD("paper", encoder=Own(), settings=replace(TINY, max_iterations=1)).fit(
        TRAIN, POOL
    )
    fitted.save(tmp_path)
    with pytest.raises(
        ValueError, match=r"the encoder 'Own', .* pass it: STSSAD.load\(folder, enc"
    ):
        STSSAD.load(tmp_path)
    assert same(fitted, STSSAD.load(tmp_path, encoder=Own()))


def test_folders_and_uint8_arrays_give_the_same_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8) for n in (10, 6)]
    for name, array in zip(("good", "pool"), arrays, strict=True):
        (tmp_path / name).mkdir()
        for i, image in enumerate(array):
            Image.fromarray(image).save(tmp_path / name / f"{i}.png")
    settings = replace(TINY, max_iterations=1)
    from_arrays = STSSAD("paper", settings=settings).fit(*arrays)
    from_folders = STSSAD("paper", settings=settings).fit(tmp_path / "good", str(tmp_path / "pool"))
    assert same(from_arrays, from_folders)


def test_a_class_of_the_same_name_is_not_taken_for_ours(model: STSSAD, tmp_path: Path) -> None:
    own = type("CutDiff", (OwnPatch,), {})
    STSSAD("paper", own(), settings=replace(TINY, max_iterations=1)).fit(TRAIN, POOL).save(tmp_path)
    with pytest.raises(ValueError, match="'CutDiff', which is not one of stssad's"):
        STSSAD.load(tmp_path)
    STSSAD.load(tmp_path, augmentation=own())
    with pytest.raises(ValueError, match="fitted with the augmentation 'CutDiff', got 'Rotation'"):
        STSSAD.load(tmp_path, augmentation=Rotation())


def mean_distance_loss_of_ones_own(Z_trn: torch.Tensor, Z_aug: torch.Tensor, Z_val: torch.Tensor):  # type: ignore[no-untyped-def]
    return mean_distance_loss(Z_trn, Z_aug, Z_val)


def test_a_loss_of_ones_own_is_missed_only_when_fitting_again(tmp_path: Path) -> None:
    mean_distance_loss_of_ones_own.__name__ = "mmd_loss"  # not ours, whatever it is called
    settings = replace(TINY, max_iterations=1)
    fitted = STSSAD("paper", settings=settings, val_loss=mean_distance_loss_of_ones_own)
    fitted.fit(TRAIN, POOL).save(tmp_path)
    loaded = STSSAD.load(tmp_path)
    np.testing.assert_array_equal(loaded.decision_function(NEW), fitted.decision_function(NEW))
    with pytest.raises(ValueError, match="tuned by the validation loss 'mmd_loss', which is not"):
        loaded.fit(TRAIN, POOL)


def test_a_model_of_the_version_before_is_refused(model: STSSAD, tmp_path: Path) -> None:
    model.save(tmp_path)
    content = json.loads((tmp_path / "model.json").read_text())
    del content["format"]
    (tmp_path / "model.json").write_text(json.dumps({**content, "version": "0.1.0"}))
    with pytest.raises(ValueError, match=r"saved by stssad 0\.1\.0, in a format .* fit it again"):
        STSSAD.load(tmp_path)


def test_a_saved_model_has_no_head(model: STSSAD, tmp_path: Path) -> None:
    from stssad.storage.files import read_tensors

    model.save(tmp_path)
    assert not any("head" in name for name in read_tensors(tmp_path / "model.safetensors"))


# --- as scikit-learn's and PyOD's estimators are used -----------------------------------------


def test_parameters_are_stored_as_given_and_can_be_set() -> None:
    from sklearn.base import clone

    model = STSSAD(augmentation=CutDiff(), seed=4)
    assert model.get_params()["seed"] == 4 and model.get_params()["encoder"] is None
    assert model.set_params(seed=5, jobs=2).seed == 5
    assert clone(model).get_params()["jobs"] == 2
    with pytest.raises(ValueError, match=r"Invalid parameter 'sede' .*'augmentation'"):
        model.set_params(sede=1)


def test_labels_probabilities_and_p_values_agree_with_the_scores(model: STSSAD) -> None:
    scores = model.decision_function(NEW)
    np.testing.assert_array_equal(model.score_samples(NEW), scores)
    probabilities = model.predict_proba(NEW)
    assert probabilities.shape == (9, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(probabilities[:, 1] > 0.5, model.predict(NEW) == 1)
    assert (np.diff(probabilities[np.argsort(scores), 1]) >= 0).all()
    p = model.p_values(scores)
    assert ((p > 0) & (p <= 1)).all() and (np.diff(p[np.argsort(scores)]) <= 0).all()


def test_the_threshold_can_be_set_after_the_fit_and_is_kept(model: STSSAD, tmp_path: Path) -> None:
    before = model.threshold_
    model.set_threshold(false_alarms=0.3)
    model.save(tmp_path)
    changed, labels = model.threshold_, model.labels_
    model.set_threshold(false_alarms=0.01)
    loaded = STSSAD.load(tmp_path)
    assert changed < before == model.threshold_
    assert loaded.threshold_ == changed and loaded.false_alarms_ == 0.3
    assert loaded.false_alarms == 0.01  # the constructor's
    np.testing.assert_array_equal(loaded.labels_, labels)
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\), got 2"):
        model.set_threshold(2)


def test_fit_predict_gives_the_labels_of_the_pool(model: STSSAD) -> None:
    again = STSSAD("paper", settings=TINY)
    np.testing.assert_array_equal(again.fit_predict(TRAIN, POOL), model.labels_)


def test_an_unfitted_estimator_says_so_as_scikit_learns_do(tmp_path: Path) -> None:
    from sklearn.exceptions import NotFittedError

    for use in ("decision_function", "predict", "predict_proba", "score_samples", "anomaly_maps"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(STSSAD(), use)(NEW)
    with pytest.raises(NotFittedError):
        STSSAD().save(tmp_path)


def test_its_repr_and_tags_are_useful(model: STSSAD) -> None:
    from sklearn.base import is_outlier_detector

    assert repr(STSSAD()) == "STSSAD()"
    unfitted = STSSAD(augmentation=[CutDiff(), Rotation()], val_loss=mmd_loss, seed=3)
    assert repr(unfitted) == (
        "STSSAD(augmentation=[CutDiff(), Rotation()], seed=3, val_loss=mmd_loss)"
    )
    assert "fitted to 20 images" in repr(model) and "of 12 flagged" in repr(model)
    assert is_outlier_detector(model)


def test_settings_encoders_and_parts_of_the_other_method_are_refused() -> None:
    for estimator, message in (
        (STSSAD(settings=TINY), "Settings belongs to the method 'paper'"),
        (STSSAD("paper", settings=PretrainedSettings()), "belongs to the method 'pretrained'"),
        (STSSAD(encoder=ResNet18(4)), "ResNet18 is to be trained"),
        (STSSAD("paper", encoder=stssad.EfficientNetLite0()), "keeps its weights"),
        (STSSAD("papers"), "unknown method 'papers'; use pretrained, paper"),
        (STSSAD(augmentation=[]), "augmentation is an empty list"),
    ):
        with pytest.raises(ValueError, match=message):
            estimator.fit(TRAIN, POOL)
    with pytest.raises(ValueError, match="pass one, or use method='pretrained'"):
        STSSAD("paper", settings=TINY).fit(TRAIN)


@pytest.mark.parametrize(
    "train,pool,message",
    [
        (TRAIN[:0], POOL, "train holds no images"),
        (TRAIN, POOL[:0], "unlabeled holds no images"),
        (TRAIN[:1], POOL, "train holds 1 image.*at least 4 are needed"),
        (TRAIN, POOL[:1], "unlabeled holds 1 image.*at least 2 are needed"),
        (TRAIN, POOL * 255, r"unlabeled must lie in \[0, 1\]"),
        (TRAIN[:1].repeat(20, 1, 1, 1), POOL, "all 20 images of train are the same"),
        (torch.zeros(20, 3, 32, 32), POOL, "all 20 images of train are the same"),
        (TRAIN, torch.zeros(5, 3, 16, 16), "one image size, got 32 and 16 pixels; resize"),
    ],
)
def test_images_that_cannot_be_fitted_are_refused(
    train: torch.Tensor, pool: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        STSSAD("paper", settings=TINY).fit(train, pool)


def test_using_a_model_wrongly_says_what_to_do(model: STSSAD, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fitted to images of 32 pixels, got 16; resize"):
        model.decision_function(torch.zeros(2, 3, 16, 16))
    with pytest.raises(FileNotFoundError, match=r"no model.json in .*; give a folder that"):
        STSSAD.load(tmp_path)
    with pytest.raises(ValueError, match="this model has no anomaly maps"):
        model.anomaly_maps(NEW)


def test_public_names_are_what_the_package_says() -> None:
    for name in stssad.__all__:
        assert getattr(stssad, name) is not None
    assert set(dir(stssad)) == set(stssad.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = stssad.nothing
