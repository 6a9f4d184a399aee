"""Result lines to the paper's tables: means over seeds, wins, ranks, and p-values."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import numpy as np

from .cell import Cell, Line

OURS = "ST-SSAD"
ABLATIONS = ("MMD1", "MMD2", "FO")
KNOWN_ORDER = (
    "AE", "D-SVDD", "RS-CO", "RD-CO", "RS-CP", "RD-CP", "RS-CD", "RD-CD", "RS-RO", "RD-RO",
    "Frozen", "PatchCore", OURS, *ABLATIONS,
)  # fmt: skip
NUMBERS = (1, 2)
Format = Literal["text", "markdown", "latex", "csv"]
Task = tuple[str, str]  # testbed and task


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper: AUROC by task and method, and its p-values by method."""

    source: str
    methods: list[str]
    auc: dict[Task, dict[str, float]]
    p_values: dict[str, float]


def paper_table(number: int) -> PaperTable:
    """The paper's Table 1 (MVTec AD) or 2 (SVHN), as printed."""
    if number not in NUMBERS:
        raise ValueError(f"the paper has tables 1 and 2 of results, got {number}")
    text = files("stssad.bench").joinpath("paper", f"table{number}.csv").read_text("utf-8")
    source, *rest = text.splitlines()
    auc: dict[Task, dict[str, float]] = {}
    p_values: dict[str, float] = {}
    reader = csv.DictReader(rest)
    methods = list(reader.fieldnames or [])[2:]
    for row in reader:
        numbers = {name: float(row[name]) for name in methods if row[name]}
        if row["testbed"] == "p-value":
            p_values = numbers
        else:
            auc[row["testbed"], row["task"]] = numbers
    return PaperTable(source.lstrip("# "), methods, auc, p_values)


@dataclass(frozen=True)
class Selection:
    """Which lines count."""

    protocol: str = "transductive"
    preset: str = "cpu"
    contamination: float | None = None

    def holds(self, cell: Cell) -> bool:
        return (cell.protocol, cell.preset, cell.contamination, cell.changes) == (
            self.protocol, self.preset, self.contamination, {},
        )  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """AUROC by task, method and seed."""

    tasks: list[Task]
    methods: list[str]
    auc: Mapping[tuple[Task, str], Mapping[int, float]]

    @staticmethod
    def of(lines: Iterable[Line], tasks: Sequence[Task], methods: Sequence[str]) -> "Grid":
        """Tasks without any line are left out."""
        auc: dict[tuple[Task, str], dict[int, float]] = {}
        for line in lines:
            c = line.cell
            auc.setdefault(((c.testbed, c.task), c.method), {})[c.seed] = line.auc
        present = [t for t in tasks if any((t, m) in auc for m in methods)]
        return Grid(present, list(methods), auc)

    def mean(self, task: Task, method: str) -> float:
        """Over the seeds; NaN where there is none."""
        values = list(self.auc.get((task, method), {}).values())
        return sum(values) / len(values) if values else math.nan

    def means(self, method: str) -> list[float]:
        return [self.mean(task, method) for task in self.tasks]

    def seeds(self, method: str) -> list[int]:
        return [len(self.auc.get((task, method), {})) for task in self.tasks]

    def pairs(self, method: str) -> tuple[list[float], list[float]]:
        """Ours and another method's AUROC, for each task and seed that both have."""
        ours, theirs = [], []
        for task in self.tasks:
            a, b = (self.auc.get((task, name), {}) for name in (OURS, method))
            for seed in sorted(a.keys() & b.keys()):
                ours.append(a[seed])
                theirs.append(b[seed])
        return ours, theirs

    def paired_means(self, method: str) -> tuple[list[float], list[float]]:
        """Ours and another method's mean AUROC over the seeds that both have, for each task."""
        ours, theirs = [], []
        for task in self.tasks:
            a, b = (self.auc.get((task, name), {}) for name in (OURS, method))
            if seeds := a.keys() & b.keys():
                ours.append(sum(a[seed] for seed in seeds) / len(seeds))
                theirs.append(sum(b[seed] for seed in seeds) / len(seeds))
        return ours, theirs

    def common(self, methods: Sequence[str]) -> list[Task]:
        """The tasks that all of these methods have."""
        return [t for t in self.tasks if all((t, m) in self.auc for m in methods)]

    def present(self, methods: Sequence[str]) -> list[str]:
        """Those of the methods that have any result."""
        return [m for m in methods if any((t, m) in self.auc for t in self.tasks)]

    def wins(self, methods: Sequence[str]) -> dict[str, int]:
        """How often each method has the best mean of a task; ties count for all."""
        count = dict.fromkeys(methods, 0)
        for task in self.tasks:
            for method in best(self, task, methods):
                count[method] += 1
        return count

    def ranks(self, methods: Sequence[str]) -> dict[str, float]:
        """Average rank, 1 the best, over the tasks that all of the methods have."""
        from scipy.stats import rankdata

        tasks = self.common(methods)
        if not tasks or not methods:
            return dict.fromkeys(methods, math.nan)
        table = np.array([[self.mean(task, m) for m in methods] for task in tasks])
        ranked = rankdata(-table, axis=1).mean(axis=0)
        return dict(zip(methods, ranked.tolist(), strict=True))


def best(grid: Grid, task: Task, methods: Sequence[str]) -> list[str]:
    """The methods with the best mean, as it is printed."""
    means = {m: round(grid.mean(task, m), 3) for m in methods}
    means = {m: v for m, v in means.items() if not math.isnan(v)}
    return [m for m, v in means.items() if v == max(means.values())]


def p_value(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """One-sided Wilcoxon signed-rank test that ours is better; NaN where nothing differs."""
    from scipy.stats import wilcoxon

    if not any(a != b for a, b in zip(ours, theirs, strict=True)):
        return math.nan
    return float(wilcoxon(ours, theirs, alternative="greater").pvalue)


@dataclass(frozen=True)
class Entry:
    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of entries; `notes` say what the numbers rest on."""

    header: list[str]
    body: list[list[Entry]]
    foot: list[list[Entry]]
    notes: list[str]


def grid_for(which: str, lines: Sequence[Line], paper: PaperTable | None) -> Grid:
    """The paper's tasks and methods, and methods beyond; or all that a testbed has."""
    if paper is not None:
        tasks, first = list(paper.auc), paper.methods
    else:
        tasks = sorted({(x.cell.testbed, x.cell.task) for x in lines if x.cell.testbed == which})
        first = []
    found = {x.cell.method for x in lines if (x.cell.testbed, x.cell.task) in set(tasks)}
    order = [*first, *(m for m in KNOWN_ORDER if m not in first)]
    rest = sorted(found - set(order))
    return Grid.of(lines, tasks, [m for m in order if m in first or m in found] + rest)


def table(which: str, lines: Iterable[Line], selection: Selection, with_paper: bool) -> Table:
    """The paper's Table 1 or 2 from our lines, or one of a testbed of any name."""
    paper = paper_table(int(which)) if which in ("1", "2") else None
    grid = grid_for(which, [line for line in lines if selection.holds(line.cell)], paper)
    main = main_methods(grid, paper)
    body = []
    for task in grid.tasks:
        winners = best(grid, task, main)
        theirs = paper.auc[task] if paper is not None and with_paper else {}
        entries = [
            Entry(beside(number_text(grid.mean(task, m)), theirs.get(m)), m in winners)
            for m in grid.methods
        ]
        body.append([Entry(task[0]), Entry(task[1]), *entries])
    shown = paper if with_paper else None
    header = ["testbed", "task", *grid.methods]
    return Table(header, body, foot(grid, main, shown), notes(grid, paper, selection, with_paper))


def main_methods(grid: Grid, paper: PaperTable | None) -> list[str]:
    """Those that compete: not the ablations, and beside a table of the paper's only its own."""
    columns = paper.methods if paper is not None else grid.methods
    return [m for m in columns if m not in ABLATIONS]


def notes(
    grid: Grid, paper: PaperTable | None, selection: Selection, with_paper: bool
) -> list[str]:
    made = [
        f"Preset {selection.preset}, protocol {selection.protocol}"
        + (f", contamination {selection.contamination:g}" if selection.contamination else "")
        + ". Mean test AUROC over seeds; the best of the main methods in bold (ablations aside).",
        "The row of means is over the tasks that all columns have, that of ranks over those that "
        "all main methods have. p-values: one-sided Wilcoxon signed-rank test that ST-SSAD is "
        "better than the column, over task x seed pairs (not independent: seeds share images) "
        "and over task means.",
        "MMD with an RBF kernel, its bandwidth the median squared distance.",
    ]
    if paper is not None and with_paper:
        made.append(f"In parentheses the paper's: {paper.source}.")
    if paper is not None and (missing := len(paper.auc) - len(grid.tasks)):
        made.append(f"{missing} of the paper's {len(paper.auc)} tasks have no result here.")
    return made


def foot(grid: Grid, main: list[str], paper: PaperTable | None) -> list[list[Entry]]:
    """What sums up each column."""
    there = grid.present(grid.methods)
    ranked = grid.present(main)
    wins, ranks = grid.wins(ranked), grid.ranks(ranked)
    everywhere = grid.common(there)

    def row(name: str, values: Mapping[str, str]) -> list[Entry]:
        return [Entry(name), Entry(""), *(Entry(values.get(m, "")) for m in grid.methods)]

    def span(method: str) -> str:
        seeds = grid.seeds(method)
        return str(seeds[0]) if len(set(seeds)) == 1 else f"{min(seeds)} to {max(seeds)}"

    others = [m for m in there if m != OURS and OURS in there]
    pairs, means = ({m: f(m) for m in others} for f in (grid.pairs, grid.paired_means))
    theirs = paper.p_values if paper is not None else {}
    return [
        row(f"mean ({len(everywhere)} tasks)", {
            m: number_text(average([grid.mean(t, m) for t in everywhere])) for m in there
        }),
        row("wins", {m: str(n) for m, n in wins.items()}),
        row(f"average rank ({len(grid.common(ranked))} tasks)",
            {m: f"{r:.2f}" for m, r in ranks.items() if not math.isnan(r)}),
        row("p (task x seed)",
            {m: beside(p_text(p_value(*pairs[m])), theirs.get(m), 4) for m in others}),
        row("pairs", {m: str(len(pairs[m][0])) for m in others}),
        row("p (task means)", {m: p_text(p_value(*means[m])) for m in others}),
        row("tasks", {m: str(len(means[m][0])) for m in others}),
        row("cells", {m: str(sum(grid.seeds(m))) for m in there}),
        row("seeds a task", {m: span(m) for m in there}),
    ]  # fmt: skip


def average(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def number_text(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def p_text(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def beside(text: str, other: float | None, digits: int = 3) -> str:
    return text if other is None else f"{text} ({other:.{digits}f})"


def rendered(made: Table, form: Format) -> str:
    """The table as text, Markdown, LaTeX or CSV."""
    return {"text": as_text, "markdown": as_markdown, "latex": as_latex, "csv": as_csv}[form](made)


def as_text(made: Table) -> str:
    rows = [[f"{e.text}*" if e.bold else e.text for e in r] for r in made.body + made.foot]
    widths = [max(map(len, column)) for column in zip(made.header, *rows, strict=True)]

    def aligned(cells: Sequence[str]) -> str:
        both = zip(cells, widths, strict=True)
        return "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(both))

    line = "-" * (sum(widths) + 2 * len(widths) - 2)
    n = len(made.body)
    parts = [aligned(made.header), line, *map(aligned, rows[:n]), line, *map(aligned, rows[n:])]
    notes = ["* the best of the main methods.", *made.notes]
    return "\n".join([*(part.rstrip() for part in parts), "", *notes])


def as_markdown(made: Table) -> str:
    rows = [[f"**{e.text}**" if e.bold else e.text for e in r] for r in made.body + made.foot]
    lines = [made.header, ["---"] * len(made.header), *rows]
    return "\n".join("| " + " | ".join(r) + " |" for r in lines) + "\n\n" + " ".join(made.notes)


def as_latex(made: Table) -> str:
    def escaped(entry: Entry) -> str:
        text = entry.text.replace("_", r"\_")
        return rf"\textbf{{{text}}}" if entry.bold else text

    def row(entries: Iterable[Entry]) -> str:
        return " & ".join(map(escaped, entries)) + r" \\"

    n = len(made.header) - 2
    return "\n".join([
        *(f"% {note}" for note in made.notes),
        rf"\begin{{tabular}}{{ll{'c' * n}}}", r"\toprule",
        row(map(Entry, made.header)), r"\midrule",
        *map(row, made.body), r"\midrule",
        *map(row, made.foot), r"\bottomrule", r"\end{tabular}",
    ])  # fmt: skip


def as_csv(made: Table) -> str:
    out = io.StringIO()
    out.writelines(f"# {note}\n" for note in made.notes)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(made.header)
    writer.writerows([e.text for e in r] for r in made.body + made.foot)
    return out.getvalue().rstrip("\n")
