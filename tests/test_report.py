"""The page in a real browser: nothing missing, nothing asked for, no error."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import run
from PIL import Image
from small_run import TINY as WORDS

from stssad import STSSAD, Rotation, Settings
from stssad.images.decode import read_image
from stssad.images.reading import Aspect, Reading
from stssad.report.charts import Line, draw_lines, linear_ticks, log_ticks
from stssad.report.material import Material, gather, pack_thumbnails
from stssad.report.page import Notes, build_gallery, embed_image, to_script, write_report
from stssad.runs.environment import environment
from stssad.runs.run import Run
from stssad.storage.files import json_digest, read_json, write_json

TINY = Settings(
    image_size=32,
    width=4,
    holdout_share=0.3,
    batch_size=8,
    warm_start_epochs=1,
    max_iterations=3,
    val_train_samples=10,
    val_augmented_samples=6,
    smoothing=2,
)
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
    tab.evaluate("document.getElementById('method').open = true")
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
        rate = 100 * float(summary.tail.p_values(np.array([threshold]))[0])
        counts, headline = (tab.locator(x).inner_text() for x in ("#counts", "#finding"))
        shown = float(counts.split("about ")[1].split(" %")[0])
        assert shown == pytest.approx(rate, rel=0.06) and "of normal images score above" in counts
        assert headline.startswith(f"{n_flagged or 'None'} of 60 ")
        assert tab.locator(".card[data-status=flagged]").count() == n_flagged
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


def save_12_bit(folder: Path, n: int, seed: int) -> None:
    """Grey PNGs as a camera of 12 bits writes them: 16 bits a pixel, white at 4095."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for i in range(n):
        values = rng.integers(1500, 4096, (40, 40)).astype(np.uint16)
        Image.fromarray(values).save(folder / f"{i:02d}.png")


def test_examples_of_12_bit_images_are_as_bright_as_what_was_learned_from(tmp_path: Path) -> None:
    save_12_bit(tmp_path / "good", 24, 0)
    save_12_bit(tmp_path / "pool", 12, 1)
    done = run(
        "fit",
        "--normal",
        tmp_path / "good",
        "--unlabeled",
        tmp_path / "pool",
        "--out",
        tmp_path / "run",
        "--jobs",
        1,
        "--quiet",
        *WORDS,
    )
    assert done.returncode == 0, done.stderr
    material = Material.load(tmp_path / "run")
    mean = 255 * (1500 + 4096) / 2 / 4095
    assert material.normal.float().mean() == pytest.approx(mean, abs=6)
    assert material.augmented.float().mean() > mean / 3
    text = (tmp_path / "run/report.html").read_text()
    assert "file://" not in text  # a browser would show these files nearly black


SPOT, WIDE, HIGH = (130, 90), 300, 200  # of a bright spot, and of its file, in pixels


@pytest.mark.parametrize("upright", [True, False])
@pytest.mark.parametrize("aspect", ["stretch", "crop", "pad"])
def test_large_view_draws_the_map_over_the_pixels_that_it_belongs_to(
    report: Path, tmp_path: Path, browser: Any, aspect: Aspect, upright: bool
) -> None:
    """A spot in a file that isn't square, and a map that is high only where the model sees it."""
    pixels = np.full((HIGH, WIDE), 40, np.uint8)
    pixels[SPOT[1] - 9 : SPOT[1] + 9, SPOT[0] - 9 : SPOT[0] + 9] = 255
    photo, at = Image.fromarray(pixels), (SPOT[0] / WIDE, SPOT[1] / HIGH)
    if not upright:
        photo, at = photo.transpose(Image.Transpose.TRANSPOSE), at[::-1]
    photo.save(tmp_path / "spot.png")
    side = 48
    seen = read_image(tmp_path / "spot.png", Reading(side, aspect))[..., 0] > 150
    rows, columns = np.nonzero(seen)
    folder = Path(shutil.copytree(report.parent, tmp_path / "run"))
    content = read_json(folder / "model.json", "")
    content["settings"]["aspect"] = aspect
    del content["sha256"]
    write_json(folder / "model.json", {**content, "sha256": json_digest(content)})
    material = Material.load(folder)
    maps = torch.from_numpy(np.tile(seen * np.uint8(255), (60, 1, 1)))
    replace(material, maps=maps, files=[str(tmp_path / "spot.png")] * 60).save(folder)
    tab = browser.new_page(viewport={"width": 1100, "height": 900})
    tab.goto(write_report(Run.open(folder)).as_uri())
    tab.locator(".card").first.click()
    tab.wait_for_function("document.querySelector('.large img')?.naturalWidth >= 200")
    image, canvas = (tab.locator(f".large {name}").bounding_box() for name in ("img", "canvas"))
    for k, (edge, size) in enumerate((("x", "width"), ("y", "height"))):
        share = ((columns, rows)[k].mean() + 0.5) / side
        shown = (canvas[edge] + share * canvas[size] - image[edge]) / image[size]
        assert shown == pytest.approx(at[k], abs=0.015), edge
    tab.close()


def test_shares_of_normal_images_are_plain_numbers(report: Path, browser: Any) -> None:
    tab = browser.new_page()
    tab.goto(report.as_uri())
    shares = [1, 0.998, 0.995, 0.5, 0.0123, 0.001]
    shown = tab.evaluate("shares => shares.map(Gallery.percent)", shares)
    assert shown == ["100 %", "100 %", "100 %", "50 %", "1.2 %", "0.1 %"]
    titles = tab.evaluate("[...document.querySelectorAll('.card')].map(card => card.title)")
    assert titles and not any("e+" in title for title in titles)
    tab.close()


def test_two_thousand_images_make_a_small_and_quick_page(tmp_path: Path, browser: Any) -> None:
    page(tmp_path, None, n_pool=12)
    rng, n = np.random.default_rng(0), 2000
    images = torch.from_numpy(rng.integers(0, 255, (40, 3, 256, 256), np.uint8))
    smooth = torch.nn.functional.avg_pool2d(images.float(), 9, 1, 4).to(torch.uint8)
    thumbnails, offsets = pack_thumbnails(smooth.repeat(50, 1, 1, 1))
    material = replace(
        Material.load(tmp_path),
        thumbnails=thumbnails,
        offsets=offsets,
        files=[""] * n,
        names=[f"image {i}" for i in range(n)],
        groups=torch.arange(n) % 3,
        maps=torch.randint(0, 255, (n, 16, 16), dtype=torch.uint8),
    )
    material.save(tmp_path)
    run = Run.open(tmp_path)
    summary = replace(run.summary(), pool_scores=rng.normal(size=n))
    gallery = build_gallery(
        summary, material, lambda i: embed_image(summary, material, i), Notes({}, {})
    )
    assert len(to_script(gallery)) < 25e6
    tab = browser.new_page()
    tab.goto(run.report.as_uri())
    took = tab.evaluate(
        """data => { const root = document.getElementById("pool")
        window.gallery = Gallery.build(root, data)
        const times = [0.5, -0.5, 1.5].map(t => {
          const a = performance.now(); gallery.move(t); document.body.offsetHeight
          return performance.now() - a })
        return times.sort((a, b) => a - b)[1] }""",
        {**gallery, "threshold": 1.0},
    )
    assert took < 100
    tab.close()


def test_ticks_are_round_and_within() -> None:
    assert linear_ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert linear_ticks(-3, 42) == pytest.approx([0, 10, 20, 30, 40])
    assert log_ticks(0.0005, 0.2) == pytest.approx([0.001, 0.01, 0.1])
    assert log_ticks(2, 9) == pytest.approx([2, 5])


def test_charts_survive_constant_and_infinite_values() -> None:
    flat = draw_lines([Line("x", [0, 1, 2], [1.0, 1.0, 1.0], 0)], "y")
    wild = draw_lines([Line("x", [0, 1, 2], [1e-9, 1.0, 1e9], 0)], "y", log=True)
    assert "nan" not in flat + wild
