"""ONNX Runtime in torch's stead: the graph is made once, and what can't be made is told once."""

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stssad import STSSAD, Patch, PretrainedSettings
from stssad.encoders.resize import area_resized
from stssad.experiments.testbeds.synthetic import texture_crops
from stssad.methods.engine import OnnxEngine, engine_for
from stssad.scoring.folds import PartScores
from stssad.scoring.score import PretrainedScore

pytest.importorskip("onnxruntime", reason="onnx")
pytest.importorskip("skimage", reason="textures need the extra `demo`")

FEW = PretrainedSettings(max_iterations=1, val_augmented_samples=2, smoothing=1)


def pixels(n: int, size: int, seed: int) -> Tensor:
    crops = texture_crops("gravel", n, size, torch.Generator().manual_seed(seed))
    return (crops * 255).round().to(torch.uint8)


class OwnEncoder(nn.Module):
    """A Fourier transform, for which this exporter has no operation."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.rfft2(x).abs()[..., :4, :4].flatten(1)


class SmallEncoder(nn.Module):
    """Averages over blocks."""

    def forward(self, x: Tensor) -> Tensor:
        return area_resized(x, 5).flatten(1)


def fitted(encoder: nn.Module, **more: str) -> STSSAD:
    model = STSSAD(augmentation=Patch(sizes=(0.02,)), encoder=encoder, settings=FEW, explain=False)
    return model.set_params(**more).fit(pixels(20, 32, 0), pixels(8, 32, 1))


def test_the_graph_of_a_model_is_made_once() -> None:
    model, many = fitted(SmallEncoder()), pixels(160, 32, 2)
    first = engine_for(model.model_, "auto", len(many))
    assert isinstance(first, OnnxEngine)
    np.testing.assert_allclose(
        model.decision_function(many), model.score_images(many).scores, atol=1e-4
    )
    model.predict(many)
    assert engine_for(model.model_, "onnx", 1) is first
    assert engine_for(fitted(SmallEncoder()).model_, "auto", 200) is not first


def test_auto_falls_back_on_torch_and_says_so_once() -> None:
    model, many = fitted(OwnEncoder()), pixels(160, 32, 2)
    with pytest.warns(UserWarning, match="can't be run by ONNX Runtime"):
        scores = model.decision_function(many)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.decision_function(many), scores)
    with pytest.raises(ValueError, match="fft"):
        model.set_params(engine="onnx").decision_function(many[:3])


@pytest.mark.parametrize(("side", "size"), [((64, 64), 32), ((50, 33), 20), ((10, 130), 7)])
def test_areas_are_averaged_as_interpolation_does(side: tuple[int, int], size: int) -> None:
    images = torch.rand(2, 3, *side, dtype=torch.float64)
    wanted = nn.functional.interpolate(images, size=(size, size), mode="area")
    torch.testing.assert_close(area_resized(images, size), wanted)


def test_a_copy_of_a_normal_image_has_a_score_that_says_something() -> None:
    """Its distance is 0, whose logarithm is no number."""
    distances = torch.tensor([3.0, 4.0, 5.0, 6.0, 0.0], dtype=torch.float64)
    score = PretrainedScore()
    score.calibrate([PartScores(distances)])
    copy, near, far = score.combined([torch.tensor([0.0, 1.0, 5.0])]).tolist()
    assert copy == near and -6 < copy < far
    usual = PretrainedScore()
    usual.calibrate([PartScores(distances[:4])])
    assert float(usual.combined([torch.zeros(1)])) > -12
