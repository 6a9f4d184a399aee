"""The studio in a real browser, measured: a run of 2,000 images, and one that is dropped."""

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from serving import a_run, fit_shortly, save, studio

N_POOL, SIDE = 2000, 64
MOVES = 20
# From an input to the next frame that shows what it changed.
UNTIL_PAINTED = """([id, value]) => new Promise(done => {
  const began = performance.now(), input = document.querySelector(id)
  if (value === null) input.click()
  else { input.value = value; input.dispatchEvent(new Event("input")) }
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)))
})"""


@cache
def large() -> tempfile.TemporaryDirectory[str]:
    """A run with a pool of 2,000 images, for all measurements of one process."""
    made = tempfile.TemporaryDirectory()
    folder = Path(made.name)
    save(folder / "good", 100, 0, SIDE)
    save(folder / "pool", N_POOL, 1, SIDE)
    fit_shortly(folder)
    return made


@contextmanager
def opened(folder: Path) -> Iterator[Any]:
    """A tab of a browser that the studio has let in."""
    from playwright.sync_api import sync_playwright

    words = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with studio(folder) as (host, token), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=words)
        tab = browser.new_context(viewport={"width": 1100, "height": 900}).new_page()
        tab.goto(f"http://{host}/?token={token}")
        yield tab
        browser.close()


def spread(took: list[float], setting: str) -> dict[str, Any]:
    return {
        "value": statistics.median(took),
        "low": min(took),
        "high": max(took),
        "setting": setting,
    }


def first_page_seconds() -> dict[str, Any]:
    """From the command to the first page."""
    folder, took = Path(large().name), []
    for _ in range(3):
        began = time.perf_counter()
        with studio(folder):
            took.append(time.perf_counter() - began)
    return spread(took, f"seconds, a run of {N_POOL} images")


def gallery_seconds() -> dict[str, Any]:
    """From a click on the run to its ranked images."""
    took = []
    with opened(Path(large().name)) as tab:
        for _ in range(3):
            began = time.perf_counter()
            tab.goto(tab.url.partition("/run")[0].rstrip("/") + "/run/run")
            tab.wait_for_selector(".card")
            took.append(time.perf_counter() - began)
    return spread(took, f"seconds, a run of {N_POOL} images")


def slider_ms() -> dict[str, Any]:
    """From a move of the threshold to the counts and dividers at the new place."""
    with opened(Path(large().name)) as tab:
        tab.click(".runs a")
        tab.wait_for_selector(".card")
        values = [str(200 + 80 * k) for k in range(MOVES)]
        took = [tab.evaluate(UNTIL_PAINTED, ["#threshold", value]) for value in values]
    return spread(took, f"milliseconds, {N_POOL} images, {MOVES} places")


def filter_ms() -> dict[str, Any]:
    """From a click on a filter to the images that it leaves."""
    with opened(Path(large().name)) as tab:
        tab.click(".runs a")
        tab.wait_for_selector(".card")
        ids = [f"[data-filter={name}]" for name in ("flagged", "fine", "borderline", "all")]
        took = [tab.evaluate(UNTIL_PAINTED, [ids[k % 4], None]) for k in range(MOVES)]
    return spread(took, f"milliseconds, {N_POOL} images, {MOVES} clicks")


def drop_seconds() -> dict[str, Any]:
    """From a dropped image of 256 px to its score; the model is in memory from the second on."""
    took = []
    with a_run() as folder, opened(folder) as tab:
        tab.click(".runs a")
        tab.wait_for_selector(".card")
        tab.click("[data-tab=try]")
        for k, path in enumerate(sorted((folder / "new").iterdir())[:6]):
            began = time.perf_counter()
            tab.set_input_files("#choose", str(path))
            tab.locator(".dropped-card").nth(k).wait_for(timeout=60_000)
            took.append(time.perf_counter() - began)
    return {**spread(took[1:], "seconds, 256 px"), "first": took[0]}


BROWSING: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "studio_first_page_seconds": (first_page_seconds, "<= 1.5"),
    "studio_gallery_seconds": (gallery_seconds, ""),
    "studio_slider_ms": (slider_ms, "<= 100"),
    "studio_filter_ms": (filter_ms, "<= 100"),
    "studio_drop_seconds": (drop_seconds, "<= 1"),
}
