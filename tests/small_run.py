"""A run that takes seconds: folders of texture, a tiny network of the paper's method."""

import subprocess
from pathlib import Path

import torch
from command import run
from PIL import Image

from stssad.experiments.testbeds.synthetic import texture_crops

# Small enough for a test: two iterations of a tiny network, four restarts.
TINY = (
    "--method paper --image-size 32 --width 4 --batch-size 8 --warm-start-epochs 2 "
    "--max-iterations 2 --val-train-samples 12 --val-augmented-samples 6 --smoothing 2"
).split()


def fit(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return run(
        "fit",
        "--normal",
        folder / "good",
        "--unlabeled",
        folder / "pool",
        "--out",
        folder / "run",
        "--jobs",
        1,
        *TINY,
        *words,
    )


def save_crops(folder: Path, n: int, seed: int) -> None:
    folder.mkdir(parents=True)
    crops = texture_crops("grass", n, 40, torch.Generator().manual_seed(seed))
    for i, crop in enumerate(crops):
        pixels = (crop.permute(1, 2, 0) * 255).to(torch.uint8).numpy()
        Image.fromarray(pixels).save(folder / f"{i:02d}.png")


def make_folders(folder: Path) -> Path:
    save_crops(folder / "good", 30, seed=0)
    save_crops(folder / "pool", 16, seed=1)
    return folder


def assert_one_sentence(done: subprocess.CompletedProcess[str], words: str) -> None:
    """Exit code 2, and one line that says what is wrong, without a traceback."""
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("stssad: ") and words in line, line
