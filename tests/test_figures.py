"""Every figure is drawn from saved results."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from stssad.augment.cutdiff import CutDiff
from stssad.experiments.bench.cell import Cell, Line, Store
from stssad.experiments.bench.figures import FIGURES, Sources, cutdiff_parameters, write_figure
from stssad.experiments.testbeds.mvtec import PAPER_CATEGORIES
from stssad.experiments.testbeds.synthetic import demonstrative_tasks
from stssad.storage.files import write_tensors

pytest.importorskip("matplotlib", reason="matplotlib is in the extra `bench`")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Made-up results of every kind, and a miniature of MVTec AD."""
    root = tmp_path_factory.mktemp("figures")
    results, data = root / "results", root / "data"
    store = Store(results)
    for task, (size, aspect) in demonstrative_tasks().items():
        for seed in range(2):
            learned = {"size": size * 1.1, "aspect": aspect, "angle_deg": 0.0}
            starts = [
                {"initial": {"size": initial}, "path": np.geomspace(initial, size, 5).tolist()}
                for initial in (0.001, 0.01)
            ]
            cell = Cell("demonstrative", task, "ST-SSAD", seed)
            store.append([Line(cell, 1.0, 1.0, learned, "0", 1, 1, 1, starts=starts)])
    for defect in ("good", *PAPER_CATEGORIES["tile"]):
        for folder in {"train/good", f"test/{defect}"}:
            (data / "tile" / folder).mkdir(parents=True, exist_ok=True)
            for i in range(3):
                Image.new("RGB", (16, 16), (90, 90, 90)).save(data / "tile" / folder / f"{i}.png")
        if defect != "good":
            learned = {"area": 0.06, "size": 0.02, "aspect": 2.0, "angle_deg": 30.0}
            cell = Cell("tile", defect, "ST-SSAD", 0)
            store.append([Line(cell, 0.8, 1.0, learned, "0", 1, 1, 1)])
    sets = {name: torch.randn(40, 4).half() for name in ("training", "augmented", "pool")}
    labels = torch.tensor([0, 1] * 20, dtype=torch.uint8)
    write_tensors(results / "embeddings.safetensors", {**sets, "pool_labels": labels})
    side = {
        "at": [8, 16],
        "mean": [[1.0] * 4] * 2,
        "deviation": [[0.1] * 4] * 2,
        "exponents": [1.0] * 4,
    }
    facts = {"runs": 3, "layers": side, "images": side}
    (results / "complexity.json").write_text(json.dumps(facts))
    return Sources(results, data)


@pytest.mark.parametrize("name", FIGURES)
def test_is_drawn(name: str, sources: Sources, tmp_path: Path) -> None:
    path = write_figure(name, sources, tmp_path)
    pixels = np.asarray(Image.open(path).convert("L"))
    assert pixels.shape[0] > 100 and pixels.std() > 5


@pytest.mark.parametrize("name", ["demonstrative", "tsne", "gallery", "times"])
def test_says_how_to_make_what_is_missing(name: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=r"stssad bench|python benchmarks"):
        write_figure(name, Sources(tmp_path, None), tmp_path)


def test_the_heatmaps_hold_what_was_learned(sources: Sources) -> None:
    area, aspect, auc = (
        axis.images[0].get_array() for axis in FIGURES["demonstrative"](sources).axes
    )
    assert np.allclose(area[:, 0], [0.011, 0.022, 0.044, 0.088, 0.176])
    assert np.allclose(aspect[0], [0.25, 0.5, 1, 2, 4]) and (auc == 1).all()


def test_the_trajectories_end_at_what_was_planted(sources: Sources) -> None:
    figure = FIGURES["trajectories"](sources)
    for axis in figure.axes:
        paths = [line.get_ydata() for line in axis.lines if len(line.get_ydata()) == 5]
        assert np.allclose([p[-1] for p in paths], [0.01, 0.02, 0.04, 0.08, 0.16])
        assert "2 seeds" in axis.get_title()


def test_the_map_shows_every_embedding(sources: Sources) -> None:
    (axis,) = FIGURES["tsne"](sources).axes
    assert [len(c.get_offsets()) for c in axis.collections] == [40, 40, 20, 20]


def test_unknown_figure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown figure 'pie'; use one of demonstrative"):
        write_figure("pie", Sources(tmp_path, None), tmp_path)


def test_parameters_from_their_description() -> None:
    a = torch.tensor([math.log(0.03), 0.3, 0.4])
    torch.testing.assert_close(cutdiff_parameters(CutDiff().describe(a)), a)
