"""What both methods compute, pinned: the numbers change only where a bug is mended, and on purpose.

In float64, where the order of summation doesn't reach the sixth digit: the same on every CPU.

    python tests/test_pinned.py        records them anew
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from stssad import STSSAD, CutDiff, Patch, PretrainedSettings, Scratch, Settings
from stssad.experiments.testbeds.synthetic import texture_crops

PINNED = Path(__file__).with_name("pinned.json")


@contextmanager
def float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def crops(n: int, size: int, seed: int) -> Tensor:
    """uint8, cut out of the texture without resampling: the same bits everywhere."""
    generator = torch.Generator().manual_seed(seed)
    return (texture_crops("gravel", n, size, generator, crop=size) * 255).round().to(torch.uint8)


def with_squares(images: Tensor, n: int) -> Tensor:
    """The first n get a bright square."""
    images = images.clone()
    side = images.shape[-1] // 4
    for k in range(n):
        row, column = 3 * k % (3 * side), 5 * k % (3 * side)
        images[k, :, row : row + side, column : column + side] = 230
    return images


def paper() -> STSSAD:
    settings = Settings(
        image_size=32,
        width=4,
        batch_size=8,
        warm_start_epochs=2,
        max_iterations=4,
        theta_updates=2,
        val_train_samples=10,
        val_augmented_samples=6,
        val_pool_samples=8,
        smoothing=2,
        holdout_share=0.25,
    )
    model = STSSAD("paper", CutDiff(sizes=(0.01, 0.1)), settings=settings, seed=3)
    return model.fit(crops(24, 32, 0), with_squares(crops(14, 32, 1), 5))


def pretrained() -> STSSAD:
    settings = PretrainedSettings(max_iterations=3, val_augmented_samples=4, smoothing=2)
    model = STSSAD("pretrained", [Patch(), Scratch()], settings=settings, seed=3)
    return model.fit(crops(30, 64, 0), with_squares(crops(24, 64, 1), 14))


def numbers(model: STSSAD, size: int) -> dict[str, Any]:
    new = with_squares(crops(6, size, 2), 2)
    found: dict[str, Any] = {
        "a": [x for c in model.candidates_ for x in c.a],
        "val_loss": [c.val_loss for c in model.candidates_],
        "chosen": model.chosen_,
        "decision_scores": model.decision_scores_.tolist(),
        "normal_scores": model.normal_scores_.tolist(),
        "threshold": model.threshold_,
        "new_scores": model.decision_function(new).tolist(),
        "new_labels": model.predict(new).tolist(),
    }
    if model.method == "paper":
        found["score_variance"] = [c.score_variance for c in model.candidates_]
    if model.evidence_ is not None and model.lesson_ is not None:
        found["evidence"] = [model.evidence_.alignment, model.evidence_.p_value]
        found["lesson"] = [model.lesson_.n_outliers, model.lesson_.agreement]
        found["map"] = model.anomaly_maps(new[:1])[0, ::16, ::16].tolist()
    return found


METHODS = {"paper": (paper, 32), "pretrained": (pretrained, 64)}


def computed(name: str) -> dict[str, Any]:
    fit, size = METHODS[name]
    with float64():
        return numbers(fit(), size)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.bit_identical
def test_both_methods_give_the_pinned_numbers(name: str) -> None:
    pinned, found = json.loads(PINNED.read_text())[name], computed(name)
    assert found.keys() == pinned.keys()
    for key, wanted in pinned.items():
        torch.testing.assert_close(
            torch.tensor(found[key], dtype=torch.float64),
            torch.tensor(wanted, dtype=torch.float64),
            rtol=1e-6,
            atol=1e-6,
            msg=lambda text, key=key: f"{key}: {text}",
        )


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: computed(name) for name in METHODS}, indent=1) + "\n")
