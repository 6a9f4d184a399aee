"""The bench of what pools teach: its divisions, its lines from real images, its tables."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from stssad.experiments.bench.beyond import TABLES
from stssad.experiments.bench.cell import Cell, Line, Store
from stssad.experiments.bench.pool import SHARES, Division, auc_of, cell_of, format_pools, run_pools
from stssad.experiments.testbeds.synthetic import texture_crops
from stssad.scoring.pool_part import CANDIDATES


def some(n_normal: int, n_defects: int) -> Division:
    return Division(torch.arange(10), 100 + torch.arange(n_normal), 500 + torch.arange(n_defects))


@pytest.mark.parametrize("share", SHARES)
def test_pools_and_tests_share_no_image_and_leave_a_third_to_test(share: float) -> None:
    pool, good, defects, anomalous = some(120, 45).pool(150, share)
    every = torch.cat([pool, good, defects]).tolist()
    assert len(set(every)) == len(every)
    assert len(good) >= 40 and len(defects) >= 15 and len(pool) <= 150
    assert (pool >= 500).numpy().tolist() == (anomalous > 0).tolist()
    assert anomalous.mean() == pytest.approx(share, abs=0.02)


def test_a_pool_is_as_large_as_asked_where_there_are_enough_images() -> None:
    assert len(some(400, 300).pool(150, 0.3)[0]) == 150


def test_auc_counts_pairs() -> None:
    scores = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert auc_of(scores, 2) == 1.0
    assert auc_of(scores, np.array([True, False, True, False])) == 0.75


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """Of a category of crops of a texture, with dark squares as defects."""
    pytest.importorskip("skimage", reason="textures need the extra `demo`")
    root = tmp_path_factory.mktemp("data")
    crops = texture_crops("gravel", 60, 32, torch.Generator().manual_seed(0))
    crops[40:, :, 4:16, 4:16] = 0.1
    for folder, rows in (("train/good", crops[:30]), ("test/good", crops[30:40])):
        write(root / "gravel" / folder, rows)
    write(root / "gravel/test/square", crops[40:])
    store = Store(tmp_path_factory.mktemp("results"))
    made = list(run_pools("gravel", root, 1, [(16, 12)], store))
    assert list(run_pools("gravel", root, 1, [(16, 12)], store)) == []  # nothing runs twice
    return made


def write(folder: Path, images: Tensor) -> None:
    folder.mkdir(parents=True)
    for i, image in enumerate(images):
        pixels = (image.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
        Image.fromarray(pixels).save(folder / f"{i:02d}.png")


def test_a_category_of_ones_own_is_judged(lines: list[Line]) -> None:
    assert [line.cell.contamination for line in lines] == list(SHARES)
    for line in lines:
        assert (line.n_train, line.n_pool) == (16, 12)
        assert line.auc > 0.9 and line.details["auc untuned"] > 0.9  # squares are easy to see
        assert all(line.details[f"auc by {name}"] > 0.5 for name in CANDIDATES)
        assert 0 <= line.details["p of what is taught"] <= 1


def test_the_table_has_a_mean_over_categories(lines: list[Line]) -> None:
    cell = replace(lines[0].cell, task="other/16 normal, pool of 12", contamination=0.3)
    of_share = next(x for x in lines if x.cell.contamination == 0.3)
    other = replace(of_share, cell=cell, auc=0.5)
    rows = [row.split(" | ") for row in format_pools([of_share, other]).splitlines()[2:]]
    assert [row[3] for row in rows] == ["gravel", "other", "**mean**"]
    chosen = [float(row[5 + len(CANDIDATES)]) for row in rows]
    assert chosen == pytest.approx([of_share.auc, 0.5, (of_share.auc + 0.5) / 2], abs=6e-4)
    assert TABLES["pools"]([of_share]).count("\n") == 2


def test_digits_stand_beside_the_papers_method() -> None:
    def line(method: str, preset: str, auc: float) -> Line:
        cell = Cell("svhn", "6/9", method, 0, "transductive", preset)
        return Line(cell, auc, 0, {}, "0", 1, 1, 1, details={"auc untuned": 0.7, "taught": 1.0})

    table = TABLES["digits"]([line("ST-SSAD+", "imagenet", 0.95), line("ST-SSAD", "cpu", 0.9)])
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]
    assert rows[0] == ["6/9", "0.7000", "0.9500", "100.0 %", "0.9000", "1/1"]
    assert rows[1][0] == "**mean of 1**" and rows[1][2] == "0.9500"


def test_cells_are_told_apart() -> None:
    keys = {
        cell_of("tile", s, n, m, c).key
        for s in (0, 1)
        for n in (20, 200)
        for m in (50, 150)
        for c in SHARES
    }
    assert len(keys) == 2 * 2 * 2 * len(SHARES)
