"""The paper's tables: its numbers as data, and ours with p-values, ranks and wins."""

import csv
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import rankdata, wilcoxon

from stssad.experiments.bench.cell import Cell, Line
from stssad.experiments.bench.table_formats import format_table
from stssad.experiments.bench.tables import Grid, Selection, make_table, p_value, read_paper_table


def lines_of(number: int, auc: Callable[[str, str, int], float], n_seeds: int = 2) -> list[Line]:
    paper = read_paper_table(number)
    return [
        Line(Cell(bed, task, method, seed), auc(task, method, seed), 1.0, {}, "0", 1, 1, 1)
        for (bed, task), method in itertools.product(paper.auc, paper.methods)
        for seed in range(n_seeds)
    ]


def test_the_papers_tables_are_whole() -> None:
    one, two = read_paper_table(1), read_paper_table(2)
    assert (len(one.auc), len(one.methods)) == (23, 12)
    assert (len(two.auc), len(two.methods)) == (18, 8)
    assert all(len(row) == 12 for row in one.auc.values())
    # "achieves the best AUC in 9 different tasks" (Sec. 5.2)
    main = [m for m in one.methods if m not in ("MMD1", "MMD2", "FO")]
    best = [max(main, key=row.__getitem__) for row in one.auc.values()]
    assert best.count("ST-SSAD") == 9
    assert one.auc["tile", "oil"]["RD-CD"] == 0.837
    assert two.auc["svhn", "6/9"]["ST-SSAD"] == 0.944
    assert one.p_values["RD-CD"] == 0.0728


def test_p_values_are_scipys_and_those_of_counting_signs() -> None:
    generator = np.random.default_rng(0)
    ours, theirs = generator.normal(0.3, 1, 9), generator.normal(0, 1, 9)
    found = p_value(ours.tolist(), theirs.tolist())
    assert found == pytest.approx(float(wilcoxon(ours, theirs, alternative="greater").pvalue))
    # independently: among all signs of the differences, those with as large a sum of ranks
    difference = ours - theirs
    ranks = rankdata(np.abs(difference))
    seen = ranks[difference > 0].sum()
    sums = [sum(itertools.compress(ranks, signs)) for signs in itertools.product((0, 1), repeat=9)]
    assert found == pytest.approx(np.mean([s >= seen - 1e-9 for s in sums]))
    assert p_value([0.5, 0.6], [0.9, 0.8]) > 0.5
    assert math.isnan(p_value([1.0, 1.0], [1.0, 1.0]))


def test_pairs_match_seeds_and_means_match_tasks() -> None:
    def auc(task: str, method: str, seed: int) -> float:
        return 0.5 + 0.01 * seed + (0.1 if method == "ST-SSAD" else 0.0)

    lines = [line for line in lines_of(2, auc) if line.cell.method in ("ST-SSAD", "AE")]
    lines = [
        line
        for line in lines
        if (line.cell.task, line.cell.method, line.cell.seed) != ("2/0", "AE", 1)
    ]
    grid = Grid.of(lines, list(read_paper_table(2).auc), read_paper_table(2).methods)
    ours, theirs = grid.pairs("AE")
    assert len(ours) == 2 * 18 - 1
    assert np.allclose(np.subtract(ours, theirs), 0.1)
    ours, theirs = grid.task_means("AE", grid.tasks)
    assert len(ours) == 18
    differences = np.subtract(ours, theirs)  # each over all its seeds: 2/0 lacks one of AE's
    assert np.allclose(differences, [0.105] + [0.1] * 17)
    assert grid.task_means("FO", grid.tasks) == ([], [])
    assert grid.spread("ST-SSAD") == pytest.approx(np.std([0.6, 0.61], ddof=1))


def test_wins_and_ranks() -> None:
    order = {"AE": 0.9, "D-SVDD": 0.8, "RS-RO": 0.9, "RD-RO": 0.6, "ST-SSAD": 0.95}

    def auc(task: str, method: str, seed: int) -> float:
        return 0.99 if (task, method) == ("6/9", "RD-RO") else order.get(method, 0.5)

    grid = Grid.of(lines_of(2, auc), list(read_paper_table(2).auc), read_paper_table(2).methods)
    main = list(order)
    assert grid.wins(main) == {"AE": 0, "D-SVDD": 0, "RS-RO": 0, "RD-RO": 1, "ST-SSAD": 17}
    ranks = grid.ranks(main)
    assert ranks["ST-SSAD"] == pytest.approx((17 * 1 + 2) / 18)
    assert ranks["AE"] == pytest.approx((17 * 2.5 + 3.5) / 18)


def some_lines() -> list[Line]:
    def auc(task: str, method: str, seed: int) -> float:
        return 0.7 + 0.001 * len(task) + 0.01 * seed + (0.2 if method == "ST-SSAD" else 0)

    return [line for line in lines_of(1, auc) if line.cell.testbed == "tile"]


def test_the_table_in_every_format() -> None:
    table = make_table("1", some_lines(), Selection(), with_paper=True)
    assert len(table.body) == 5
    text, markdown, latex = (format_table(table, f) for f in ("text", "markdown", "latex"))
    assert "0.910 (0.749)*" in text and "18 of the paper's 23 tasks have no result" in text
    assert "**0.910 (0.749)**" in markdown
    assert r"\textbf{0.910 (0.749)}" in latex and r"glue\_strip" in latex
    rows = list(csv.reader(x for x in format_table(table, "csv").splitlines() if x[0] != "#"))
    assert len({len(row) for row in rows}) == 1
    cells = dict(zip(rows[0], next(row for row in rows if row[0] == "cells"), strict=True))
    assert cells["ST-SSAD"] == "10"  # five tasks, two seeds
    p = dict(zip(rows[0], next(row for row in rows if row[0].startswith("p (task m")), strict=True))
    assert float(p["AE"]) == pytest.approx(0.5**5, abs=1e-3)  # all five the same sign


def test_only_the_chosen_protocol_and_preset_count() -> None:
    assert make_table("1", some_lines(), Selection(protocol="inductive"), False).body == []
    changed = [
        Line(Cell("tile", "oil", "AE", 0, changes={"width": 8}), 0.1, 1, {}, "0", 1, 1, 1),
        Line(Cell("tile", "oil", "AE", 0), 0.9, 1, {}, "0", 1, 1, 1),
    ]
    assert make_table("1", changed, Selection(), False).body[0][2].text == "0.900"


def test_methods_of_ones_own_get_a_column_and_a_p_value() -> None:
    own = [
        Line(Cell("tile", task, "Mine", 0), 0.5, 1, {}, "0", 1, 1, 1)
        for task in ("crack", "oil", "rough")
    ]
    table = make_table("1", [*some_lines(), *own], Selection(), False)
    assert table.header[-1] == "Mine"
    foot = {row[0].text: row[-1].text for row in table.foot}
    assert foot["p (task means)"] == "0.1250" and foot["tasks"] == "3" and foot["pairs"] == "3"
    assert foot["wins"] == ""  # the paper's methods compete among themselves


def test_any_testbed_has_a_table() -> None:
    lines = [
        Line(Cell("bottle", task, method, seed), 0.6 + 0.1 * k, 1, {}, "0", 1, 1, 1)
        for task in ("broken", "dirty")
        for k, method in enumerate(("AE", "PatchCore", "Mine"))
        for seed in range(k + 1)
    ]
    table = make_table("bottle", lines, Selection(), True)
    assert table.header == ["testbed", "task", "AE", "PatchCore", "Mine"]
    assert [entry.bold for entry in table.body[0][2:]] == [False, False, True]
    foot = {row[0].text: [entry.text for entry in row[2:]] for row in table.foot}
    assert foot["seeds a task"] == ["1", "2", "3"] and foot["cells"] == ["2", "4", "6"]
    assert foot["average rank (2 tasks)"] == ["3.00", "2.00", "1.00"]


def test_means_are_over_the_tasks_that_all_columns_have() -> None:
    lines = [
        Line(Cell("tile", task, method, 0), auc, 1, {}, "0", 1, 1, 1)
        for task, method, auc in (
            ("oil", "AE", 0.5),
            ("oil", "ST-SSAD", 0.6),
            ("crack", "ST-SSAD", 1.0),
        )
    ]
    table = make_table("1", lines, Selection(), False)
    means = dict(zip(table.header, table.foot[0], strict=True))
    assert table.foot[0][0].text == "mean (1 tasks)"
    assert (means["AE"].text, means["ST-SSAD"].text) == ("0.500", "0.600")
