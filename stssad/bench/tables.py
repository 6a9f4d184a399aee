"""Result lines to the paper's tables: means over seeds, wins, ranks, and p-values."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import numpy as np

from ..settings import Settings
from ..testbeds.presets import DEVELOPMENT, preset_settings
from .cell import Cell, Line

OURS = "ST-SSAD"
ABLATIONS = ("MMD1", "MMD2", "FO")
KNOWN_ORDER = (
    "AE", "D-SVDD", "RS-CO", "RD-CO", "RS-CP", "RD-CP", "RS-CD", "RD-CD", "RS-RO", "RD-RO",
    "Frozen", "PatchCore", OURS, *ABLATIONS, "RS4-CD", "RD4-CD", "RS4-RO", "RD4-RO",
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

    def task_means(self, method: str, tasks: Sequence[Task]) -> tuple[list[float], list[float]]:
        """Ours and another method's mean AUROC, each over all its seeds, for each task."""
        both = [t for t in tasks if (t, OURS) in self.auc and (t, method) in self.auc]
        return [self.mean(t, OURS) for t in both], [self.mean(t, method) for t in both]

    def spread(self, method: str) -> float:
        """The deviation, between seeds, of the mean over the tasks; NaN for a single seed."""
        tasks = [t for t in self.tasks if (t, method) in self.auc]
        seeds = set.intersection(*(set(self.auc[t, method]) for t in tasks)) if tasks else set()
        if len(seeds) < 2:
            return math.nan
        means = [average([self.auc[t, method][seed] for t in tasks]) for seed in seeds]
        return float(np.std(means, ddof=1))

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

    if all(a == b for a, b in zip(ours, theirs, strict=True)):
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
        + f", {sizes_text(grid, selection.preset)}. Mean test AUROC over seeds; the best of the "
        "main methods in bold (ablations aside).",
        "Rows of means and ranks are over the tasks that all main methods have. p-values: "
        "one-sided Wilcoxon signed-rank test that ST-SSAD is "
        "better than the column, over task x seed pairs (not independent: seeds share images) "
        "and over task means, each over all seeds of a method. The deviation is between seeds, of "
        "the mean over tasks.",
        "MMD with an RBF kernel, its bandwidth the median squared distance.",
    ]
    if paper is not None and with_paper:
        made.append(f"In parentheses the paper's: {paper.source}.")
    if paper is not None and (missing := len(paper.auc) - len(grid.tasks)):
        made.append(f"{missing} of the paper's {len(paper.auc)} tasks have no result here.")
    return made


def sizes_text(grid: Grid, preset: str) -> str:
    """Image size and width of the network, which an AUROC can't be read without."""
    found = []
    for testbed in dict.fromkeys(bed for bed, _ in grid.tasks):
        settings = preset_settings(testbed, preset)
        width = f", width {settings.width}" if isinstance(settings, Settings) else ""
        found.append(f"{settings.image_size} px{width}")
    return "; ".join(dict.fromkeys(found))


def task_groups(grid: Grid) -> dict[str, list[Task]]:
    """The tasks to judge by, and those that settings were compared on, where there were any."""
    development = [t for t in grid.tasks if t[1] in DEVELOPMENT.get(t[0], ())]
    if not development:
        return {}
    judging = [t for t in grid.tasks if t not in development]
    return {"judging": judging, "development": development}


def foot(grid: Grid, main: list[str], paper: PaperTable | None) -> list[list[Entry]]:
    """What sums up each column."""
    there = grid.present(grid.methods)
    ranked = grid.present(main)
    wins, ranks = grid.wins(ranked), grid.ranks(ranked)
    everywhere = grid.common(ranked)

    def row(name: str, values: Mapping[str, str]) -> list[Entry]:
        return [Entry(name), Entry(""), *(Entry(values.get(m, "")) for m in grid.methods)]

    def span(method: str) -> str:
        seeds = grid.seeds(method)
        return str(seeds[0]) if len(set(seeds)) == 1 else f"{min(seeds)} to {max(seeds)}"

    others = [m for m in there if m != OURS and OURS in there]
    pairs = {m: grid.pairs(m) for m in others}
    means = {m: grid.task_means(m, grid.tasks) for m in others}
    theirs = paper.p_values if paper is not None else {}

    def mean_row(words: str, tasks: Sequence[Task]) -> list[Entry]:
        return row(f"mean ({len(tasks)} {words}tasks)", {
            m: number_text(average([grid.mean(t, m) for t in tasks]))
            for m in there if all((t, m) in grid.auc for t in tasks)
        })  # fmt: skip

    def p_row(words: str, tasks: Sequence[Task]) -> list[Entry]:
        found = {m: p_text(p_value(*grid.task_means(m, tasks))) for m in others}
        return row(f"p ({words}task means)", found)

    groups = {f"{name} ": [t for t in of if t in everywhere]
              for name, of in task_groups(grid).items()}  # fmt: skip
    return [
        mean_row("", everywhere),
        *(mean_row(name, of) for name, of in groups.items()),
        row("deviation between seeds", {
            m: number_text(grid.spread(m)) for m in there if not math.isnan(grid.spread(m))
        }),
        row("wins", {m: str(n) for m, n in wins.items()}),
        row(f"average rank ({len(grid.common(ranked))} tasks)",
            {m: f"{r:.2f}" for m, r in ranks.items() if not math.isnan(r)}),
        row("p (task x seed)",
            {m: beside(p_text(p_value(*pairs[m])), theirs.get(m), 4) for m in others}),
        row("pairs", {m: str(len(pairs[m][0])) for m in others}),
        p_row("", grid.tasks),
        *(p_row(name, of) for name, of in groups.items() if name == "judging "),
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
