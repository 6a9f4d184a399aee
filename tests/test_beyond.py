"""Tables of the pretrained method, pixel AUROC, heatmap files, an encoder of one's own."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from stssad.deploy.heatmaps import HeatmapWriter, coloured, overlaid
from stssad.experiments.bench.beyond import TABLES, fill_tables
from stssad.experiments.bench.cell import Cell, Line
from stssad.experiments.bench.pixels import aupro, masked_images, pixel_auc
from stssad.experiments.bench.runner import make_units
from stssad.images.reading import Reading
from stssad.scoring.anomaly_map import MapScale


def line(
    task: str, method: str, seed: int, auc: float, changes: dict[str, int] | None = None
) -> Line:
    cell = Cell("tile", task, method, seed, "inductive", "imagenet", 0.1, changes or {})
    return Line(cell, auc, 1.0, {}, "0", 1, 1, 1)


def ours(task: str, seed: int, auc: float) -> Line:
    details = {"J": 0.5, "p": 0.001 + seed, "auc untuned": 0.8}
    return replace(line(task, "ST-SSAD+", seed, auc), learned={"type": "Scratch"}, details=details)


LINES = [
    *(
        line(task, m, s, auc, changes)
        for task in ("oil", "crack")
        for s in (0, 1)
        for m, auc, changes in (
            ("Frozen", 0.9, {}),
            ("Frozen", 0.7, {"image_size": 128}),
            ("PatchCore", 0.95, {}),
            ("PatchCore", 0.75, {"image_size": 128}),
        )
    ),
    ours("oil", 0, 0.98),
    ours("oil", 1, 1.0),
    ours("crack", 0, 0.88),
    ours("crack", 1, 0.9),
]


def asked(task: str, seed: int, auc: float, share: float = 0.1, **changes: object) -> Line:
    """Of the robustness testbed."""
    cell = Cell("robustness", task, "ST-SSAD+", seed, "inductive", "imagenet", share, changes)
    details = {
        "auc untuned": auc - 0.1,
        "flagged 1 %": 0.01,
        "flagged 5 %": 0.04,
        "found 1 %": 0.5,
        "outliers": 6,
        "contamination low": 0.05,
        "contamination high": 0.2,
        "anomalous": share,
        "looks clean": 0.0,
        "encoding ms": 15.0,
    }
    return Line(cell, auc, 0, {}, "0", 1, 60, 1, details=details)


def rows_of(name: str, lines: list[Line]) -> list[list[str]]:
    return [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in TABLES[name](lines).splitlines()[2:]
    ]


def test_main_table_puts_all_of_them_side_by_side() -> None:
    rows = rows_of("main", LINES)
    assert [row[0] for row in rows] == ["tile/crack", "tile/oil", "**mean of 2, without screw**"]
    assert rows[1][1:7] == ["0.7000", "0.9000", "0.7500", "0.9500", "0.8000", "0.9900"]
    assert rows[1][7:] == ["Scratch 2", "0.50", "0.001 to 1", "2/2/2/2/2"]
    assert rows[2][6] == "**0.9400**"
    assert rows_of("short", LINES)[0][1:] == ["0.7000", "0.9000", "0.7500", "0.9500", "0.9400"]
    assert rows_of("main", LINES[1:])[1][1:6:4] == ["0.7000", "0.8000"]
    without = [x for x in LINES if x.cell.method != "PatchCore"]  # not run: no number
    assert rows_of("main", without)[2][3:5] == ["**-**", "**-**"]


def test_light_is_compared_with_the_normal_images_own_and_screw_is_apart() -> None:
    lines = [
        asked("tile/oil", 0, 0.9),
        asked("tile/oil", 1, 1.0),
        asked("screw/any", 0, 0.1),
        asked("tile/oil", 0, 0.8, light="20 % darker"),
        asked("tile/all kinds", 0, 0.99),
    ]
    rows = rows_of("light", lines)
    assert [row[:3] for row in rows] == [
        ["as the normal images", "0.9500", "0.8500"],
        ["20 % darker", "0.8000", "0.7000"],
    ]
    assert rows_of("mixed", lines) == [
        ["tile", "10 %", "0.9900", "0.8900", "50.0 %", "-", "-", "6 of 60", "1"]
    ]
    mixed = lines[-1]
    known = replace(mixed, details={**mixed.details, "pool found": 0.7, "pool false": 0.1})
    assert rows_of("mixed", [known])[0][5:7] == ["70.0 %", "10.0 %"]


def test_calibration_counts_covered_intervals_and_claims() -> None:
    lines = [asked("tile/oil", 0, 0.9), asked("tile/oil", 0, 0.9, share=0.3)]
    rows = rows_of("calibration", lines)
    assert rows[0] == ["all but screw", "10 %", "1.0 %", "4.0 %", "100.0 %", "100.0 %", "1"]
    assert rows[1][4] == "0.0 %"  # 0.3 lies outside of 0.05 to 0.2


def test_constants_are_settled_on_the_other_categories() -> None:
    """On the others 5 is better, so that the category which is left out gets 5, bad as it is."""
    lines = [
        *(asked(f"{name}/all kinds", 0, 0.9) for name in ("tile", "bottle", "mtd")),
        asked("tile/all kinds", 0, 0.95, highest=5),
        asked("bottle/all kinds", 0, 0.95, highest=5),
        asked("mtd/all kinds", 0, 0.5, highest=5),
    ]
    rows = {row[1]: row[2:] for row in rows_of("settled", lines)}
    assert rows["mtd"] == ["5", "0.5000", "0.9000", "3"]
    assert rows["tile"] == ["3", "0.9000", "0.9000", "3"]


def test_clean_pools_are_counted() -> None:
    cell = Cell("clean", "tile/40 normal, 30 in the pool", "ST-SSAD+", 0, "", "imagenet", 0.0)
    made = [
        Line(replace(cell, seed=k), 0.5, 0, {}, "0", 1, 1, 1, details={"p": p})
        for k, p in enumerate((0.005, 0.03, 0.5))
    ]
    assert rows_of("clean", made) == [["as the normal images", "3", "1", "2", "2", "0.005"]]


def test_pixels_are_compared_by_category() -> None:
    made = [
        Line(
            Cell("pixels", "tile", m, 0, "transductive", "imagenet"),
            auc,
            1,
            {},
            "0",
            1,
            1,
            117,
            details={"aupro": auc - 0.1},
        )
        for m, auc in (("PatchCore", 0.94), ("ST-SSAD+", 0.95))
    ]
    assert rows_of("pixels", made) == [["tile", "0.9400", "0.9500", "0.8400", "0.8500", "117", "1"]]


def test_tables_are_filled_in_between_their_marks() -> None:
    text = "before\n<!-- table main -->\nold\n<!-- end -->\nafter\n"
    once = fill_tables(text, LINES)
    assert "old" not in once and "tile/oil" in once
    assert once.startswith("before\n") and once.endswith("after\n")
    assert fill_tables(once, LINES) == once
    assert fill_tables(once, []) == once  # where there are no results, nothing is lost


def test_one_fit_serves_both_protocols_of_a_pool() -> None:
    cells = [
        Cell("tile", task, "ST-SSAD+", 0, protocol, "imagenet", 0.1)
        for task in ("crack", "oil")
        for protocol in ("inductive", "transductive")
    ]
    made = make_units(cells, None, None)
    assert [[c.task for c in unit.cells] for unit in made] == [["crack"] * 2, ["oil"] * 2]
    apart = [replace(cell, contamination=None) for cell in cells]  # other pools then
    assert len(make_units(apart, None, None)) == 4


def test_masks_are_read_and_pixels_counted(tmp_path: Path) -> None:
    for part in ("train/good", "test/good", "test/hole", "ground_truth/hole"):
        (tmp_path / "nut" / part).mkdir(parents=True)
    for part in ("train/good", "test/good", "test/hole"):
        Image.new("RGB", (64, 64), (90, 90, 90)).save(tmp_path / "nut" / part / "000.png")
    mask = np.zeros((64, 64), dtype=np.uint8)
    mask[:32, :16] = 255
    Image.fromarray(mask).save(tmp_path / "nut" / "ground_truth/hole/000_mask.png")
    images, masks = masked_images(tmp_path, "nut", Reading(32))
    assert images.shape == (2, 3, 32, 32) and masks.sum(dim=(1, 2)).tolist() == [0, 16 * 8]
    right = torch.nn.functional.avg_pool2d(masks[:, None].float(), 2)[:, 0]
    assert pixel_auc(right, masks) > 0.99
    assert pixel_auc(-right, masks) < 0.01
    assert aupro(right, masks) > 0.95 and aupro(-right, masks) < 0.05
    (tmp_path / "nut" / "ground_truth/hole/000_mask.png").unlink()
    with pytest.raises(FileNotFoundError, match="no mask"):
        masked_images(tmp_path, "nut", Reading(32))


def test_aupro_needs_no_more_than_the_oldest_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy 1.26, which pyproject.toml allows, has no `trapezoid`."""
    monkeypatch.delattr(np, "trapezoid", raising=False)
    masks = torch.zeros(1, 32, 32, dtype=torch.bool)
    masks[0, 8:24, 8:24] = True
    assert aupro(masks.float(), masks) > 0.9


def test_aupro_labels_regions_that_touch_at_a_corner_as_one() -> None:
    """As MVTec's evaluation code does: of two touching squares, the large one nearly decides."""
    masks = torch.zeros(1, 32, 32, dtype=torch.bool)
    masks[0, 4:8, 4:8] = masks[0, 8:24, 8:24] = True
    maps = torch.zeros(1, 32, 32)
    maps[0, 8:24, 8:24] = 1  # finds 256 of the 272 pixels
    assert aupro(maps, masks) == pytest.approx(256 / 272, abs=0.01)


def test_the_same_heat_has_the_same_colour_in_every_image(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (50, 40), (120, 120, 120)).save(tmp_path / name)
    write = HeatmapWriter(tmp_path / "out", tmp_path, MapScale(1.0, 3.0), Reading(128, "crop"))
    mild = torch.ones(8, 8)
    mild[2, 2] = 2.0
    hot = mild.clone()
    hot[6, 6] = 3.0
    write(tmp_path / "a/1.png", mild)
    write(tmp_path / "b/1.png", hot)
    one, other = (
        np.asarray(Image.open(tmp_path / "out" / name)).astype(int)
        for name in ("a/1.png", "b/1.png")
    )
    np.testing.assert_array_equal(one[:120, :120], other[:120, :120])
    assert (one[200:, 200:] != other[200:, 200:]).any()
    assert np.ptp(one[-1, 0]) == 0  # cold: the image in grey


def test_images_of_one_name_get_files_of_their_own(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "1.png")
    write = HeatmapWriter(tmp_path / "out", Path("elsewhere"), MapScale(0.0, 1.0), Reading(128))
    for _ in range(2):
        write(tmp_path / "1.png", torch.zeros(4, 4))
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["1-2.png", "1.png"]


def test_colours_grow_lighter_with_heat() -> None:
    brightness = coloured(np.linspace(0, 1, 50)[None]).sum(axis=2)[0]
    assert (np.diff(brightness) > 0).all()
    assert overlaid(np.full((4, 4, 3), 9, np.uint8), np.zeros((4, 4))).tolist()[0][0] == [9] * 3


def example(name: str) -> ModuleType:
    path = Path(__file__).parent.parent / "examples" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Backbone(nn.Module):
    """The form of torchvision's ResNets, small."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 7, 2, 3), nn.BatchNorm2d(4)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Conv2d(4, 4, 3, 1, 1)
        self.layer2, self.layer3 = nn.Conv2d(4, 6, 3, 2, 1), nn.Conv2d(6, 8, 3, 2, 1)


def test_the_example_of_an_own_encoder_has_maps_and_an_embedding() -> None:
    encoder = example("your_encoder.py").Stages(Backbone()).eval()
    x = torch.rand(2, 3, 64, 64)
    maps = encoder.features(x)
    assert [tuple(m.shape[1:]) for m in maps] == [(6, 8, 8), (8, 4, 4)]
    torch.testing.assert_close(encoder(x), encoder.pooled(maps))
    assert encoder(x).shape == (2, 14)
