"""Scores 20,000 files while files are removed, truncated and replaced under it: is memory flat?

python benchmarks/soak.py [--files 20000]
"""

import argparse
import random
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import torch
from PIL import Image

from stssad import STSSAD, Settings
from stssad.experiments.testbeds.synthetic import texture_crops
from stssad.runs.predictions import score_files, skip_unreadable

FIRST = 2000  # files after which memory is first measured


def resident() -> float:
    """MiB of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def disturb(paths: list[Path], whole: bytes, stop: threading.Event) -> None:
    """Someone else's work on the same folder."""
    rng = random.Random(0)
    while not stop.wait(0.002):
        path, kind = rng.choice(paths), rng.random()
        if kind < 0.3:
            path.unlink(missing_ok=True)
        elif kind < 0.6:
            path.write_bytes(whole[: rng.randrange(len(whole))])
        else:
            path.write_bytes(whole)


def soak(n: int) -> tuple[float, float, int, int]:
    """Memory after FIRST and after n files, how many were scored, and how many couldn't be."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        crops = texture_crops("grass", 40, 64, torch.Generator().manual_seed(0))
        few = Settings.quick(image_size=32, width=4, warm_start_epochs=1, max_iterations=2)
        small = torch.nn.functional.avg_pool2d(crops, 2)
        model = STSSAD("paper", settings=few).fit(small, small[:12])
        pixels = (crops[0].permute(1, 2, 0) * 255).to(torch.uint8).numpy()
        paths = [folder / f"{k}.png" for k in range(500)]
        for path in paths:
            Image.fromarray(pixels).save(path)
        stop, unreadable = threading.Event(), []
        worker = threading.Thread(target=disturb, args=(paths, paths[0].read_bytes(), stop))
        worker.start()
        first, scored = 0.0, 0
        try:
            every = (paths[k % len(paths)] for k in range(n))
            for _ in skip_unreadable(
                score_files(model, every), lambda e: unreadable.append(type(e))
            ):
                scored += 1
                if first == 0.0 and scored + len(unreadable) >= FIRST:
                    first = resident()
        finally:
            stop.set()
            worker.join()
        return first, resident(), scored, len(unreadable)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=20000)
    n = parser.parse_args().files
    warnings.simplefilter("ignore")
    began = time.monotonic()
    first, last, scored, unreadable = soak(n)
    print(f"{scored} scored, {unreadable} could not be read, of {n}")
    print(f"memory after {FIRST}: {first:.1f} MiB, after {n}: {last:.1f} MiB ({last / first:.3f})")
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(0 if scored + unreadable == n and last <= 1.05 * first else 1)


if __name__ == "__main__":
    main()
