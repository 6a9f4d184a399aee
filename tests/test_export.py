"""The ONNX file: the same numbers as the model that it was made of."""

import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from command import run
from PIL import Image
from small_run import assert_one_sentence
from torch import Tensor

from stssad import STSSAD, EfficientNetLite0, Patch, PretrainedSettings, Settings
from stssad.encoders.encoding import features_of
from stssad.encoders.engine import CompiledEncoder
from stssad.experiments.testbeds.synthetic import texture_crops
from stssad.scoring.anomaly_map import upsampled

onnxruntime = pytest.importorskip("onnxruntime", reason="onnx")
pytest.importorskip("onnx", reason="onnx")
pytest.importorskip("skimage", reason="textures need the extra `demo`")

DATA = os.environ.get("STSSAD_DATA")
EXAMPLE = Path(__file__).parent.parent / "examples" / "onnx_inference.py"
FEW = PretrainedSettings(max_iterations=2, val_augmented_samples=4, smoothing=2)
TINY_PAPER = Settings.quick(image_size=32, width=4, warm_start_epochs=2, max_iterations=2)


def pixels(n: int, size: int, seed: int, n_dark: int = 0) -> Tensor:
    """uint8 crops of a texture, the first of them with a dark square."""
    crops = texture_crops("gravel", n, size, torch.Generator().manual_seed(seed))
    crops[:n_dark, :, 5 : size // 2, 5 : size // 2] = 0.05
    return (crops * 255).round().to(torch.uint8)


@cache
def made_by(method: str) -> STSSAD:
    """Not to be changed: several tests ask it."""
    if method == "paper":
        model = STSSAD("paper", settings=TINY_PAPER)
        return model.fit(pixels(30, 32, 0), pixels(12, 32, 1, 4))
    settings = replace(FEW, tuning_size=32) if method == "two sizes" else FEW
    model = STSSAD(augmentation=Patch(sizes=(0.02,)), settings=settings)
    return model.fit(pixels(60, 64, 0), pixels(30, 64, 1, 8))


@pytest.mark.parametrize("method", ["pretrained", "two sizes", "paper"])
def test_scores_labels_p_values_and_maps_are_the_models(method: str, tmp_path: Path) -> None:
    from stssad.deploy.export import export_onnx

    model, path = made_by(method), tmp_path / "model.onnx"
    export_onnx(model, path, {"run": "a test"})
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    facts = session.get_modelmeta().custom_metadata_map
    assert float(facts["threshold"]) == model.threshold_ and facts["run"] == "a test"
    assert json.loads(facts["class_names"]) == ["normal", "anomaly"]
    new = pixels(7, model.image_size_, 5, 3)
    wanted = model.decision_function(new)
    for some in (slice(0, 7), slice(2, 3)):  # any number of images
        given = new[some].permute(0, 2, 3, 1).contiguous().numpy()
        score, label, p_value, heat = session.run(None, {"pixels": given})
        np.testing.assert_allclose(score, wanted[some], atol=1e-3)
        np.testing.assert_array_equal(label, model.predict(new[some]))
        # Of the graph's own scores, which are of single precision: the same p-values.
        np.testing.assert_allclose(p_value, model.p_values(score), rtol=1e-9)
        np.testing.assert_allclose(p_value, model.p_values(wanted[some]), rtol=1e-3, atol=1e-3)
        if method != "paper":
            np.testing.assert_allclose(heat, model.anomaly_maps(new[some]), atol=1e-3)


def test_a_run_is_exported_and_the_example_reads_it(fitted: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(fitted, tmp_path / "copy"))
    done = run("export", folder / "run", "--out", tmp_path / "small.onnx")
    assert done.returncode == 0, done.stderr
    files = sorted((folder / "good").iterdir())[:3]
    (folder / "pool" / "notes.txt").write_text("taken on Monday")
    example = subprocess.run(
        [sys.executable, EXAMPLE, tmp_path / "small.onnx", *files, folder / "pool"],
        capture_output=True,
        text=True,
    )
    assert example.returncode == 0, example.stderr
    (sentence,) = example.stderr.splitlines()
    assert "cannot read" in sentence and "notes.txt" in sentence
    rows = [line.rsplit(",", 3) for line in example.stdout.splitlines()[1:]]
    assert [row[0] for row in rows[:3]] == list(map(str, files)) and len(rows) == 3 + 16
    (folder / "pool" / "notes.txt").unlink()
    for name in ("good", "pool"):
        table = tmp_path / f"{name}.csv"
        assert run("score", folder / "run", folder / name, "--out", table).returncode == 0
    lines = [
        line.rsplit(",", 3)
        for name in ("good", "pool")
        for line in (tmp_path / f"{name}.csv").read_text().splitlines()[1:]
    ]
    ours = {line[0]: line[1:] for line in lines}
    for name, score, label, _ in rows:
        assert float(score) == pytest.approx(float(ours[name][0]), abs=1e-3, rel=1e-5)
        assert label == ours[name][1]
    (tmp_path / "broken.onnx").write_bytes((tmp_path / "small.onnx").read_bytes()[:999])
    broken = subprocess.run(
        [sys.executable, EXAMPLE, tmp_path / "broken.onnx", *files], capture_output=True, text=True
    )
    assert broken.returncode == 1 and "export it again" in broken.stderr
    assert_one_sentence(run("export", tmp_path, "--out", tmp_path / "x.onnx"), "no model.json")


def test_both_engines_score_alike(tmp_path: Path) -> None:
    from stssad.methods.engine import OnnxEngine, engine_for

    model = made_by("pretrained")
    new = pixels(9, 64, 7, 4)
    fast, plain = (
        engine_for(model.model_, "onnx", None)(new),
        engine_for(model.model_, "torch", None)(new),
    )
    np.testing.assert_allclose(fast.scores.numpy(), plain.scores.numpy(), atol=1e-4)
    assert fast.maps is not None and plain.maps is not None
    np.testing.assert_allclose(fast.maps.numpy(), plain.maps.numpy(), atol=1e-3)
    assert engine_for(model.model_, "auto", 3) is model.model_  # a graph isn't worth making
    assert isinstance(engine_for(model.model_, "auto", 5000), OnnxEngine)
    np.testing.assert_array_equal(model.decision_function(new), plain.scores.numpy())
    with pytest.raises(ValueError, match="unknown engine 'tpu'"):
        engine_for(model.model_, "tpu", None)


def test_the_command_line_takes_an_engine(fitted: Path) -> None:
    found = []
    for engine in ("torch", "onnx"):
        done = run("score", fitted / "run", fitted / "pool", "--engine", engine)
        assert done.returncode == 0, done.stderr
        rows = [line.rsplit(",", 3) for line in done.stdout.splitlines()[1:]]
        found.append([[row[0], row[2]] for row in rows])
    assert found[0] == found[1] and len(found[0]) == 16


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 45


@pytest.mark.slow
def test_the_example_runs_where_there_is_neither_torch_nor_stssad(tmp_path: Path) -> None:
    from stssad.deploy.export import export_onnx

    model = made_by("pretrained")
    export_onnx(model, tmp_path / "m.onnx", {})
    image = pixels(1, 64, 9, 1)
    Image.fromarray(image[0].permute(1, 2, 0).numpy()).save(tmp_path / "a.png")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    constraints = EXAMPLE.parent.parent / "constraints.txt"
    install = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "-c",
        constraints,
        "onnxruntime",
        "numpy",
        "pillow",
    ]
    if subprocess.run(install, capture_output=True).returncode != 0:
        pytest.skip("packages can't be installed here")
    assert subprocess.run([python, "-c", "import torch"], capture_output=True).returncode != 0
    done = subprocess.run(
        [python, EXAMPLE, tmp_path / "m.onnx", tmp_path / "a.png"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    score = float(done.stdout.splitlines()[1].rsplit(",", 3)[1])
    assert score == pytest.approx(float(model.decision_function(image)[0]), abs=1e-3)


def test_a_fit_in_either_engine_comes_to_the_same() -> None:
    """Both sizes, in float and in bytes; labels alike, scores to 1e-4."""
    train, pool = pixels(60, 64, 0), pixels(30, 64, 1, 8)
    settings = replace(FEW, tuning_size=32)
    found = [
        STSSAD(augmentation=Patch(sizes=(0.02,)), settings=settings, engine=engine).fit(train, pool)
        for engine in ("torch", "onnx")
    ]
    np.testing.assert_allclose(*(model.decision_scores_ for model in found), atol=1e-3)
    np.testing.assert_array_equal(*(model.labels_ for model in found))
    new = pixels(12, 64, 7, 4)
    np.testing.assert_array_equal(*(model.predict(new) for model in found))


def test_features_in_onnx_runtime_are_torchs() -> None:
    encoder = EfficientNetLite0().eval().requires_grad_(False)
    fast, images = CompiledEncoder(encoder, 96, 64), pixels(3, 96, 3)  # a size that doesn't divide
    ours, theirs = fast(images), features_of(encoder, images, 64)
    assert ours.small is not None and theirs.small is not None
    for one, other in ((ours, theirs), (ours.small, theirs.small)):
        torch.testing.assert_close(one.pooled, other.pooled, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(one.patches, other.patches, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(DATA is None, reason="STSSAD_DATA names no folder of real images")
def test_500_real_images_get_the_models_scores_labels_and_maps(tmp_path: Path) -> None:
    """The default at its full size, from its own category and from others."""
    from stssad.deploy.export import export_onnx
    from stssad.images.reading import Reading
    from stssad.images.source import find_images, read_images

    root = Path(str(DATA)) / "mvtec"
    folders = ("tile/train/good", "tile/test", "bottle/train/good", "hazelnut/train/good")
    if not all((root / each).is_dir() for each in folders):
        pytest.skip("no MVTec AD tile, bottle and hazelnut in STSSAD_DATA")
    train, test, *others = (find_images(root / each) for each in folders)
    new = [*test, *others[0], *others[1]][:500]
    assert len(new) == 500
    settings = replace(FEW, max_iterations=1, smoothing=1)
    model = STSSAD(augmentation=Patch(sizes=(0.02,)), settings=settings).fit(train[:100], test[::2])
    path = tmp_path / "model.onnx"
    export_onnx(model, path, {"run": "a test"})
    assert path.stat().st_size < 40e6
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for k in range(0, 500, 50):
        images, _ = read_images(new[k : k + 50], Reading(model.image_size_))
        found = session.run(None, {"pixels": images.permute(0, 2, 3, 1).contiguous().numpy()})
        wanted = model.score_images(images)  # in torch
        np.testing.assert_allclose(found[0], wanted.scores, atol=1e-3)
        np.testing.assert_array_equal(found[1], wanted.scores.numpy() > model.threshold_)
        assert model.map_scale_ is not None and wanted.maps is not None
        maps = upsampled(model.map_scale_(wanted.maps), model.image_size_)
        np.testing.assert_allclose(found[3], maps, atol=1e-3)


def test_openvino_reads_the_file_too(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino", reason="openvino isn't installed")
    from stssad.deploy.export import export_onnx

    model, new = made_by("two sizes"), pixels(5, 64, 9, 2)
    export_onnx(model, tmp_path / "m.onnx", {})
    exact = {"INFERENCE_PRECISION_HINT": "f32"}  # else some CPUs compute in half precision
    compiled = openvino.compile_model(str(tmp_path / "m.onnx"), "CPU", exact)
    found = compiled({"pixels": new.permute(0, 2, 3, 1).contiguous().numpy()})
    np.testing.assert_allclose(found["pred_score"], model.decision_function(new), atol=1e-3)
    np.testing.assert_array_equal(found["pred_label"], model.predict(new))
