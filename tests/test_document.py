"""The document of results, from whole and from partial results."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import documents

from stssad.experiments.bench.cell import Cell, Line, Store
from stssad.experiments.bench.document import document, write_document
from stssad.experiments.bench.tables import read_paper_table
from stssad.experiments.testbeds.synthetic import demonstrative_tasks

ROOT = Path(__file__).parent.parent


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def made(folder: Path, *words: str) -> int | str:
    """The script in a folder, in this process; how it exits."""
    with inside(folder), patch.object(sys, "argv", ["documents.py", *words]):
        try:
            documents.main()
        except SystemExit as stop:
            return stop.code or 0
    return 0


def line(cell: Cell, auc: float, learned: dict[str, float] | None = None) -> Line:
    start = {
        "initial": {},
        "learned": learned or {},
        "collapsed": cell.task == "oil",
        "path": [],
        "losses": [2.0 if cell.testbed == "tile" else 0.1, 1.0],
    }
    return Line(cell, auc, 3.0, learned or {}, "0", 10, 5, 5, starts=[start])


def whole() -> list[Line]:
    """Tile with every method, ours best but on oil; the 25 tasks; the robustness."""
    lines = []
    for task in ("crack", "oil"):
        for method in read_paper_table(1).methods:
            auc = (0.4 if task == "oil" else 0.9) if method == "ST-SSAD" else 0.7
            lines.append(line(Cell("tile", task, method, 0), auc))
        lines.append(line(Cell("tile", task, "ST-SSAD", 0, "inductive"), 0.8))
        for n in (64, 128, 256, 512):
            cell = Cell("tile", task, "ST-SSAD", 0, changes={"val_augmented_samples": n})
            lines.append(line(cell, 1 - n / 1000))
    for task, (size, aspect) in demonstrative_tasks().items():
        learned = {"size": 2 * size, "aspect": aspect, "angle_deg": 0.0}
        lines.append(line(Cell("demonstrative", task, "ST-SSAD", 0), 1.0, learned))
    return lines


def test_it_says_where_the_method_wins_and_fails() -> None:
    text = document(whole(), notes="Typed by a person.")
    assert "has mean AUROC 0.650, number 9 of 9" in text
    assert "equal to the best, in 1 tasks (crack)" in text
    assert "furthest behind on oil: 0.400, 0.300 below" in text
    assert "Worse than chance: oil 0.400" in text
    assert "AUROC 1.00 in 25 of 25 tasks" in text and "factor of 2.00 in the median" in text
    assert "| average rank | 1.0 | 2.0 | 3.0 | 4.0 |" in text
    assert "| tile | 2 | 1 | 1 of 2 | 2.00 |" in text  # restarts that collapsed
    assert "Typed by a person." in text


def test_partial_results_give_no_nonsense(tmp_path: Path) -> None:
    some = [x for x in whole() if x.cell.method in ("ST-SSAD", "RS-CO") and x.cell.task != "crack"]
    for k, lines in enumerate((some, some[:1], [line(Cell("svhn", "2/0", "AE", 0), 0.5)], [])):
        Store(tmp_path / f"{k}").append(lines)
        write_document(tmp_path / f"{k}", tmp_path / "docs" / "results.md")
        text = (tmp_path / "docs" / "results.md").read_text()
        assert text.startswith("# Results") and "nan" not in text
    assert "number 2 of 2" in document(some)


def test_the_documents_are_what_the_committed_results_give() -> None:
    assert made(ROOT, "--check") == 0


def test_documents_are_written_only_in_the_repositorys_root(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine\n<!-- table main -->\nmine\n<!-- end -->\n")
    before = (tmp_path / "README.md").read_text()
    assert "is not the root" in str(made(tmp_path))
    assert (tmp_path / "README.md").read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["README.md"]


def test_changed_results_change_the_documents(tmp_path: Path) -> None:
    """In a copy of the repository's files, with results of pixels alone."""
    for name in (
        "docs/results.md",
        "README.md",
        "pyproject.toml",
        "results/pixels.jsonl",
        "docs/beyond-the-paper.md",
        "docs/decisions.md",
        "docs/studio.md",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    path, pixels = tmp_path / "docs/beyond-the-paper.md", tmp_path / "results/pixels.jsonl"
    pixels.write_text(pixels.read_text().replace('"aupro": 0.', '"aupro": 0.1'))
    before = path.read_text()
    assert made(tmp_path, "--check") == 1 and path.read_text() == before
    assert made(tmp_path) == 0 and "| 0.1849 |" in path.read_text()
    assert made(tmp_path, "--check") == 0
