"""A pool teaches a fit: to images, saved, exported, in words, and refitted."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from stssad import STSSAD, Patch
from stssad.encoders.encoding import encode
from stssad.experiments.testbeds.synthetic import texture_crops
from stssad.methods.refit import collect_refit_data, refit
from stssad.report.presentation import format_lesson
from stssad.runs.summary import read_summary
from stssad.scoring.lesson import Lesson
from stssad.scoring.pool_auc import Gain
from stssad.scoring.pool_part import PoolPart, Trial
from stssad.scoring.score import PretrainedScore

pytest.importorskip("skimage", reason="textures need the extra `demo`")

FAINT = torch.tensor([np.log(0.02), 0.0, 0.0, 0.35])
N_FAINT = 40


def crops(n: int, seed: int, n_faint: int = 0) -> Tensor:
    """Of a texture; the first ones have a patch that is a little too bright."""
    images = texture_crops("gravel", n, 48, torch.Generator().manual_seed(seed))
    noise = Patch().draw(n_faint, torch.Generator().manual_seed(9))
    return torch.cat([Patch()(images[:n_faint], FAINT, noise), images[n_faint:]])


@pytest.fixture(scope="module")
def taught() -> tuple[STSSAD, Tensor]:
    pool = crops(90, 1, N_FAINT)
    return STSSAD(engine="torch", explain=False).fit(crops(100, 0), pool), pool


def scorer_of(model: STSSAD) -> PretrainedScore:
    scorer = model.model_.scorer
    assert isinstance(scorer, PretrainedScore)
    return scorer


def auc(scores: np.ndarray, n: int) -> float:
    """Of the first n being the anomalies."""
    return float((scores[:n, None] > scores[None, n:]).mean())


def test_new_images_gain_by_what_the_pool_taught(taught: tuple[STSSAD, Tensor]) -> None:
    model, pool = taught
    assert model.fitted_.pool is not None and model.fitted_.pool.trial is not None
    trial, untaught = model.fitted_.pool.trial, model.workings_.untaught
    assert trial.is_taught and trial.gain.p_value < 0.05 and isinstance(untaught, PretrainedScore)
    new = crops(160, 5, 80)
    before = untaught(encode(model.model_.encoder, new)).scores.numpy()
    assert auc(model.decision_function(new), 80) > auc(before, 80) + 0.03
    of_pool = untaught(encode(model.model_.encoder, pool)).scores.numpy()
    assert auc(model.decision_scores_, N_FAINT) > auc(of_pool, N_FAINT) + 0.02
    fresh = model.decision_function(crops(200, 6))
    assert abs(fresh.mean()) < 0.5 and (fresh > model.threshold_).mean() <= 0.04


def test_saved_and_loaded_it_scores_alike_and_says_what_was_taught(
    taught: tuple[STSSAD, Tensor], tmp_path: Path
) -> None:
    model, _ = taught
    model.save(tmp_path)
    again, new = STSSAD.load(tmp_path), crops(8, 7, 4)
    np.testing.assert_array_equal(again.decision_function(new), model.decision_function(new))
    assert again.fitted_.pool is not None and model.fitted_.pool is not None
    trial = model.fitted_.pool.trial
    assert again.fitted_.pool.trial == trial and trial is not None
    sentence = format_lesson(read_summary(tmp_path))
    assert f"{100 * trial.gain.after:.1f} % of its images" in sentence
    assert f"instead of {100 * trial.gain.before:.1f} %" in sentence


def test_the_exported_file_knows_it_too(taught: tuple[STSSAD, Tensor], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnx")
    from stssad.deploy.export import export_onnx

    model, _ = taught
    export_onnx(model, tmp_path / "model.onnx", {})
    new = (crops(6, 8, 3) * 255).round().to(torch.uint8)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    pixels = new.permute(0, 2, 3, 1).contiguous().numpy()
    found = session.run(["pred_score"], {"pixels": pixels})[0]
    np.testing.assert_allclose(found, model.decision_function(new), atol=1e-3)
    part, scorer = scorer_of(model).pool_part, scorer_of(model)
    scorer.pool_part = PoolPart()
    assert np.abs(found - model.decision_function(new)).max() > 0.05  # it isn't nothing
    scorer.pool_part = part


def test_a_refit_keeps_what_the_pool_taught_and_heeds_labels(
    taught: tuple[STSSAD, Tensor],
) -> None:
    model, _ = taught
    data = collect_refit_data(scorer_of(model), model.workings_)
    none = np.empty(0, dtype=np.int64)
    unlabeled = refit(model.fitted_, data, none, none, 0)
    assert unlabeled.pool is not None
    assert np.corrcoef(unlabeled.pool.scores, model.decision_scores_)[0, 1] > 0.99
    order = np.argsort(-model.decision_scores_)
    defects = order[order < N_FAINT][:10]
    good = order[order >= N_FAINT][:10]
    labeled = refit(model.fitted_, data, good, defects, 0)
    part = labeled.model.scorer.pool_part
    assert isinstance(part, PoolPart) and part.is_taught and labeled.pool is not None
    others = np.setdiff1d(np.arange(90), np.concatenate([good, defects]))
    truth = others < N_FAINT

    def auc_of(scores: np.ndarray) -> float:
        return float((scores[others][truth, None] > scores[others][None, ~truth]).mean())

    assert auc_of(labeled.pool.scores.numpy()) > auc_of(model.decision_scores_)


def test_no_sentence_contradicts_another(taught: tuple[STSSAD, Tensor], tmp_path: Path) -> None:
    taught[0].save(tmp_path)
    summary = read_summary(tmp_path)
    assert summary.trial is not None
    none, some = Lesson(7, 0.0, 0.0), Lesson(7, 0.3, 30.0)
    nothing = replace(summary.trial, weight=0.0, gain=Gain(0.06, 0.06, 0.4))
    refused = replace(summary.trial, weight=0.0, body=0.1)
    light = replace(summary.trial, weight=0.0, differs=True)

    def said(trial: Trial, lesson: Lesson) -> str:
        return format_lesson(replace(summary, trial=trial, lesson=lesson))

    assert said(nothing, none) == "The pool taught the scores no direction (p = 0.4)."
    assert "taught" not in said(nothing, some) and "up-weighted along it" in said(nothing, some)
    assert "recorded in the same way?" in said(refused, none)
    assert "no further direction" in said(refused, some)
    assert "other light or focus" in said(light, none)
    again = said(replace(summary.trial, by_labels=True), some)
    assert "with the labels" in again and "p =" not in again
