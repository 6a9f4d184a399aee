"""The page in a real browser: nothing missing, nothing asked for, no error."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from stssad import STSSAD, Rotation, Settings
from stssad.report.charts import Line, line_chart, linear_ticks, log_ticks
from stssad.report.material import gather
from stssad.report.page import write_report
from stssad.run import Run, environment
from stssad.storage import write_json

TINY = Settings(
    image_size=32, width=4, holdout_share=0.3, batch_size=8, warm_start_epochs=1, max_iterations=3,
    val_train_samples=10, val_augmented_samples=6, smoothing=2,
)  # fmt: skip
FACTS = {"title": "<b>Bolts & nuts</b>", "command": "stssad fit --out 'a b'", **environment()}


def page(folder: Path, augmentation: Any, n_pool: int) -> Path:
    generator = torch.Generator().manual_seed(0)
    train, pool = (torch.rand(n, 3, 32, 32, generator=generator) for n in (24, n_pool))
    model = STSSAD("paper", augmentation, settings=TINY).fit(train, pool)
    gather(model, train, pool).save(folder)
    write_json(folder / "environment.json", FACTS)
    model.save(folder)
    return write_report(Run.open(folder))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page(tmp_path_factory.mktemp("report"), None, n_pool=60)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        if os.environ.get("STSSAD_REQUIRE_BROWSER"):
            pytest.fail("a browser is required here, but chromium isn't installed")
        pytest.skip("chromium isn't installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        chromium = playwright.chromium.launch(executable_path=executable, args=flags)
        yield chromium
        chromium.close()


def test_page_has_no_error_asks_for_nothing_and_shows_its_images(
    report: Path, browser: Any
) -> None:
    tab = browser.new_page(viewport={"width": 1100, "height": 900})
    errors: list[str] = []
    requests: list[str] = []
    tab.on("console", lambda message: errors.append(message.text))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(report.as_uri())
    tab.wait_for_function("[...document.images].every(i => i.complete)")
    assert errors == []
    assert [url for url in requests if not url.startswith("data:")] == [report.as_uri()]
    widths = tab.evaluate("[...document.images].map(i => i.naturalWidth)")
    assert len(widths) == 3 * 6 + 40 + 10 and min(widths) == 32
    assert tab.locator("svg").count() == 3 + 2 + 2
    assert tab.locator("h1").inner_text() == "<b>Bolts & nuts</b>"  # as text, not as markup
    assert "of its 60 images score above the threshold" in tab.locator("#finding").inner_text()
    assert "stssad fit --out 'a b'" in tab.locator("code").inner_text()
    tab.close()


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_page_fits_its_window(report: Path, browser: Any, width: int) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 800})
    tab.goto(report.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.close()


def test_page_has_a_light_and_a_dark_theme(report: Path, browser: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme)
        tab.goto(report.as_uri())
        colours.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        tab.locator("#theme").click()
        colours.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        tab.close()
    light, to_dark, dark, to_light = colours
    assert light != dark and to_dark == dark and to_light == light


def test_page_of_a_rotation_and_a_small_pool(tmp_path: Path) -> None:
    text = page(tmp_path, Rotation(), n_pool=5).read_text()
    assert "a rotation" in text and "The pool is tiny: 5 images" in text
    assert "And the least anomalous" not in text


def test_page_is_self_contained(report: Path) -> None:
    text = report.read_text()
    assert "http://" not in text and "https://" not in text and 'src="/' not in text


def test_ticks_are_round_and_within() -> None:
    assert linear_ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert linear_ticks(-3, 42) == pytest.approx([0, 10, 20, 30, 40])
    assert log_ticks(0.0005, 0.2) == pytest.approx([0.001, 0.01, 0.1])
    assert log_ticks(2, 9) == pytest.approx([2, 5])


def test_charts_survive_constant_and_infinite_values() -> None:
    flat = line_chart([Line("x", [0, 1, 2], [1.0, 1.0, 1.0], 0)], "y")
    wild = line_chart([Line("x", [0, 1, 2], [1e-9, 1.0, 1e9], 0)], "y", log=True)
    assert "nan" not in flat + wild
