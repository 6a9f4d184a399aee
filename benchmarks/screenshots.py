"""The screenshots in README: the report and the studio of a run on textures with planted defects.

python benchmarks/screenshots.py [--out docs] [--keep FOLDER]

Needs chromium, and the extras demo and studio.
"""

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from stssad import Patch, Scratch
from stssad.experiments.testbeds.synthetic import texture_crops

COMMAND = str(Path(sys.executable).with_name("stssad"))
SIZE, N_NORMAL, N_POOL, N_EACH = 128, 160, 90, 9
BRIGHT = torch.tensor([math.log(0.015), 0.0, 0.0, 0.5])
DARK = torch.tensor([math.log(0.012), 0.0, 0.0, -0.5])
LINE = torch.tensor([math.log(0.8), math.log(0.02), 0.7])


def save(images: torch.Tensor, folder: Path) -> None:
    folder.mkdir(parents=True)
    for i, image in enumerate(images):
        pixels = (image.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
        Image.fromarray(pixels).save(folder / f"part-{i:03d}.png")


def make_images(folder: Path) -> None:
    """Normal crops of gravel, and a pool with three kinds of defects in it."""
    generator = torch.Generator().manual_seed(0)
    save(texture_crops("gravel", N_NORMAL, SIZE, generator), folder / "good")
    pool = texture_crops("gravel", N_POOL, SIZE, generator)
    for k, (kind, a) in enumerate(((Patch(), BRIGHT), (Patch(), DARK), (Scratch(), LINE))):
        rows = slice(k * N_EACH, (k + 1) * N_EACH)
        pool[rows] = kind(pool[rows], a, kind.draw(N_EACH, generator))
    save(pool[torch.randperm(N_POOL, generator=generator)], folder / "pool")


def take(folder: Path, out: Path) -> None:
    words = [
        "fit",
        "--normal",
        folder / "good",
        "--unlabeled",
        folder / "pool",
        "--out",
        folder / "runs/gravel",
    ]
    subprocess.run([COMMAND, *map(str, words)], check=True)
    process = subprocess.Popen(
        [COMMAND, "studio", str(folder / "runs"), "--images", str(folder), "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "400", "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        photograph(next(w for w in line.split() if w.startswith("http")), folder, out)
    finally:
        process.kill()
        process.communicate()


def photograph(address: str, folder: Path, out: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        found = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=found, args=flags)
        tab = browser.new_page(viewport={"width": 1100, "height": 900})
        tab.goto((folder / "runs/gravel/report.html").as_uri())
        tab.wait_for_timeout(500)
        tab.screenshot(path=out / "report.png")
        studio(tab, address, out)
        browser.close()


def studio(tab: Any, address: str, out: Path) -> None:
    tab.goto(address)
    tab.click("text=gravel")
    tab.wait_for_selector(".card")
    tab.locator(".card").nth(2).hover()
    tab.wait_for_timeout(500)
    tab.screenshot(path=out / "studio-look.png")
    tab.click("[data-tab=review]")
    for _ in range(14):
        tab.wait_for_selector("#shown img")
        is_flagged = "not flagged" not in tab.locator("#shown-facts").inner_text()
        tab.keyboard.press("d" if is_flagged else "g")
        tab.wait_for_timeout(250)
    tab.click("#refit")
    tab.wait_for_selector("#accept", timeout=60_000)
    tab.wait_for_timeout(300)
    tab.screenshot(path=out / "studio-review.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--keep", type=Path, help="Folder for images and runs; else temporary.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary) / "images"
        make_images(folder)
        take(folder, given.out)


if __name__ == "__main__":
    main()
