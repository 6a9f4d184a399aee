"""The paper's running-time figure: time of each step against layers and against images.

    python benchmarks/complexity.py [--runs 100]

Steps as in the paper's Sec. 5.5: 1 and 2 are the forward and the backward pass of line 3 (of
Algorithm 1); 3 is lines 4 to 7; 4 is line 8. Prints means, deviations and fitted exponents; writes
results/complexity.json, from which `stssad bench figure times` draws the figure.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import seconds
from torch.autograd import grad

from stssad import MLP, CutDiff, Settings
from stssad.encoders.detector import Detector
from stssad.tuning.hypergradient import hypergradient
from stssad.tuning.problem import ThetaStep, TrainBatch, TuningProblem, ValSample
from stssad.tuning.val_loss import mean_distance_loss

LAYERS = (8, 16, 32, 64, 128)
IMAGES = (128, 256, 512, 1024, 2048)
SIZE, WIDTH, BATCH, ALPHA = 16, 128, 32, 0.03
RESULTS = Path(__file__).parent.parent / "results" / "complexity.json"


def step_times(n_layers: int, n_images: int) -> list[float]:
    """Seconds of the four steps, once, with n_images in each of the three sets."""
    images, noise = torch.rand(n_images, 3, SIZE, SIZE), torch.rand(n_images, 2)
    detector, augmentation = Detector(MLP(SIZE, n_layers, WIDTH), SIZE), CutDiff()
    settings = Settings(image_size=SIZE, chunk_size=256)
    problem = TuningProblem(detector, augmentation, mean_distance_loss, images, images, settings)
    theta, buffers = detector.initial_state(seed=0)
    a = augmentation.initial_values()[2]
    batch = TrainBatch(images[:BATCH], images[:BATCH], noise[:BATCH])
    sample = ValSample(images, images, noise, images)
    leaves = {name: p.requires_grad_() for name, p in theta.items()}
    made: dict[str, Any] = {}

    def forward() -> None:
        augmented = augmentation(batch.sources, a, batch.noise)
        made["loss"], made["buffers"] = detector.training_loss(
            leaves, buffers, batch.normal, augmented
        )

    def backward() -> None:
        made["g"] = grad(made["loss"], list(leaves.values()))

    def embed() -> None:
        with torch.no_grad():
            sets = (images, augmentation(images, a, noise), images)
            Z = [detector.embed(theta, made["buffers"], x) for x in sets]
            mean_distance_loss(*Z)

    def tune() -> None:
        moved = {k: p - ALPHA * g for (k, p), g in zip(theta.items(), made["g"], strict=True)}
        step = ThetaStep(theta, moved, made["buffers"], batch, ALPHA, loss=0.0)
        hypergradient(problem, step, a, sample)

    one, two, three = seconds(forward), seconds(backward), seconds(embed)
    return [one, two, three, max(seconds(tune) - three, 0.0)]  # which embeds once more by itself


def measured(points: Sequence[tuple[int, int]], runs: int) -> dict[str, list[list[float]]]:
    """Mean and deviation (points, steps) over interleaved runs."""
    for point in points:
        step_times(*point)
    times = np.array([[step_times(*point) for point in points] for _ in range(runs)])
    return {"mean": times.mean(0).tolist(), "deviation": times.std(0).tolist()}


def exponents(xs: Sequence[int], means: list[list[float]]) -> list[float]:
    """Of x, for each step, by least squares in logarithms."""
    return [
        float(np.polyfit([math.log(x) for x in xs], np.log([row[k] for row in means]), 1)[0])
        for k in range(4)
    ]


def show(name: str, xs: Sequence[int], result: dict[str, list[list[float]]]) -> list[float]:
    print(f"{name:>10}" + "".join(f"{f'step {k + 1} (ms)':>18}" for k in range(4)))
    for x, means, deviations in zip(xs, result["mean"], result["deviation"], strict=True):
        cells = (f"{1e3 * m:9.2f} ± {1e3 * d:5.2f}" for m, d in zip(means, deviations, strict=True))
        print(f"{x:>10}" + "".join(f"{cell:>18}" for cell in cells))
    found = exponents(xs, result["mean"])
    print(f"{'exponent':>10}" + "".join(f"{e:18.2f}" for e in found), "\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    torch.set_num_threads(1)
    print(
        f"MLP of width {WIDTH} on {SIZE} px, mini-batch {BATCH}+{BATCH}, one thread, {runs} runs\n"
    )
    layers = measured([(n, 256) for n in LAYERS], runs)
    images = measured([(8, n) for n in IMAGES], runs)
    content = {
        "runs": runs,
        "layers": {"at": LAYERS, **layers, "exponents": show("layers", LAYERS, layers)},
        "images": {"at": IMAGES, **images, "exponents": show("images", IMAGES, images)},
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
