"""The page in a real browser: nothing missing, nothing asked for, no error."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stssad import STSSAD, Rotation, Settings
from stssad.report.charts import Line, line_chart, linear_ticks, log_ticks
from stssad.report.material import Material, gather, packed
from stssad.report.page import as_script, gallery_data, in_page, write_report
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
    tab.wait_for_load_state("networkidle")
    assert errors == []
    assert [url for url in requests if not url.startswith("data:")] == [report.as_uri()]
    assert tab.locator(".card img").count() == 60
    tab.evaluate("document.getElementById('decided').open = true")
    widths = tab.evaluate("[...document.images].filter(i => i.complete).map(i => i.naturalWidth)")
    assert len(widths) >= 3 * 6 and set(widths) == {32}
    assert tab.locator("svg").count() == 1 + 3 + 2 + 1
    assert tab.locator("h1").inner_text() == "<b>Bolts & nuts</b>"  # as text, not as markup
    assert "of 60" in tab.locator("#finding").inner_text()
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


def test_page_is_self_contained(report: Path) -> None:
    text = report.read_text().replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert "http://" not in text and "https://" not in text and 'src="/' not in text


def test_the_threshold_moves_and_the_counts_are_right(
    report: Path, browser: Any, tmp_path: Path
) -> None:
    """Against counts made in Python, from the files of the run."""
    summary = Run.open(report.parent).summary()
    tab = browser.new_page(viewport={"width": 1100, "height": 900})
    tab.goto(report.as_uri())
    order = sorted(summary.pool_scores, reverse=True)
    for n_flagged in (0, 7, 30, 60):
        low = order[n_flagged] if n_flagged < 60 else order[-1] - 1
        high = order[n_flagged - 1] if n_flagged else order[0] + 1
        threshold = float(low + high) / 2
        took = tab.evaluate(
            "t => { const a = performance.now(); gallery.move(t); return performance.now() - a }",
            threshold,
        )
        assert took < 100
        rate = 100 * float((summary.normal_scores > threshold).mean())
        said = tab.locator("#said").inner_text()
        assert f": {n_flagged} of 60 flagged" in said and f"{rate:.1f} % of unseen" in said
        assert tab.locator(".card[data-group=flagged]").count() == n_flagged
    tab.evaluate("t => gallery.move(t)", float(order[6] + order[7]) / 2)
    tab.click("[data-filter=flagged]")
    assert tab.locator(".card:visible").count() == 7
    with tab.expect_download() as download:
        tab.click("#download")
    download.value.save_as(tmp_path / "s.csv")
    with open(tmp_path / "s.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["pred_label"] for row in rows] == ["1"] * 7 + ["0"] * 53
    assert [float(row["pred_score"]) for row in rows] == pytest.approx(order)
    tab.locator(".card:visible").first.click()
    assert tab.locator("dialog").is_visible()
    tab.keyboard.press("ArrowRight")
    assert tab.locator("dialog h3").inner_text().startswith("2. ")
    tab.keyboard.press("Escape")
    assert not tab.locator("dialog").is_visible()
    tab.close()


def test_hostile_names_are_text(tmp_path: Path, browser: Any) -> None:
    path = page(tmp_path, None, n_pool=12)
    material = Material.load(tmp_path)
    names = ["</script><script>window.owned=1</script>", "<img src=x onerror=window.owned=1>"]
    replace(material, names=names + material.names[2:]).save(tmp_path)
    write_report(Run.open(tmp_path))
    tab = browser.new_page()
    tab.goto(path.as_uri())
    assert tab.evaluate("window.owned") is None
    shown = tab.locator(".card strong").all_inner_texts()
    assert any(names[0] in each for each in shown) and any(names[1] in each for each in shown)
    tab.close()


def test_two_thousand_images_make_a_small_and_quick_page(tmp_path: Path, browser: Any) -> None:
    page(tmp_path, None, n_pool=12)
    rng, n = np.random.default_rng(0), 2000
    images = torch.from_numpy(rng.integers(0, 255, (40, 3, 256, 256), np.uint8))
    smooth = torch.nn.functional.avg_pool2d(images.float(), 9, 1, 4).to(torch.uint8)
    thumbnails, offsets = packed(smooth.repeat(50, 1, 1, 1))
    material = replace(
        Material.load(tmp_path), thumbnails=thumbnails, offsets=offsets, files=[""] * n,
        names=[f"image {i}" for i in range(n)], kinds=torch.arange(n) % 3,
        maps=torch.randint(0, 255, (n, 16, 16), dtype=torch.uint8),
    )  # fmt: skip
    material.save(tmp_path)
    run = Run.open(tmp_path)
    summary = replace(run.summary(), pool_scores=rng.normal(size=n))
    told = gallery_data(summary, material, lambda i: in_page(material, i), {})
    assert len(as_script(told)) < 25e6
    tab = browser.new_page()
    tab.goto(run.report.as_uri())
    took = tab.evaluate(
        """data => { const root = document.getElementById("pool")
        window.gallery = Gallery.build(root, data)
        const times = [0.5, -0.5, 1.5].map(t => {
          const a = performance.now(); gallery.move(t); document.body.offsetHeight
          return performance.now() - a })
        return times.sort((a, b) => a - b)[1] }""",
        {**told, "threshold": 1.0},
    )
    assert took < 100
    tab.close()


def test_ticks_are_round_and_within() -> None:
    assert linear_ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert linear_ticks(-3, 42) == pytest.approx([0, 10, 20, 30, 40])
    assert log_ticks(0.0005, 0.2) == pytest.approx([0.001, 0.01, 0.1])
    assert log_ticks(2, 9) == pytest.approx([2, 5])


def test_charts_survive_constant_and_infinite_values() -> None:
    flat = line_chart([Line("x", [0, 1, 2], [1.0, 1.0, 1.0], 0)], "y")
    wild = line_chart([Line("x", [0, 1, 2], [1e-9, 1.0, 1e9], 0)], "y", log=True)
    assert "nan" not in flat + wild
