"""Result lines to the paper's tables: means over seeds, wins, ranks, and p-values."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from ...settings import Settings
from ..testbeds.presets import DEVELOPMENT, preset_settings
from .cell import Cell, Line

OURS = "ST-SSAD"
ABLATIONS = ("MMD1", "MMD2", "FO")
KNOWN_ORDER = (
    "AE",
    "D-SVDD",
    "RS-CO",
    "RD-CO",
    "RS-CP",
    "RD-CP",
    "RS-CD",
    "RD-CD",
    "RS-RO",
    "RD-RO",
    "Frozen",
    "PatchCore",
    OURS,
    *ABLATIONS,
    "RS4-CD",
    "RD4-CD",
    "RS4-RO",
    "RD4-RO",
)
NUMBERS = (1, 2)
Task = tuple[str, str]  # testbed and task


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper: AUROC by task and method, and its p-values by method."""

    source: str
    methods: list[str]
    auc: dict[Task, dict[str, float]]
    p_values: dict[str, float]


def read_paper_table(number: int) -> PaperTable:
    """The paper's Table 1 (MVTec AD) or 2 (SVHN), as printed."""
    if number not in NUMBERS:
        raise ValueError(f"the paper has tables 1 and 2 of results, got {number}")
    text = files("stssad.experiments").joinpath("paper", f"table{number}.csv").read_text("utf-8")
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
            self.protocol,
            self.preset,
            self.contamination,
            {},
        )


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
            for method in find_best(self, task, methods):
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


def find_best(grid: Grid, task: Task, methods: Sequence[str]) -> list[str]:
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


def make_grid(which: str, lines: Sequence[Line], paper: PaperTable | None) -> Grid:
    """The paper's tasks and methods, and methods beyond; or all that a testbed has."""
    if paper is not None:
        tasks, first = list(paper.auc), paper.methods
    else:
        tasks = sorted({(x.cell.testbed, x.cell.task) for x in lines if x.cell.testbed == which})
        first = []
    present = {x.cell.method for x in lines if (x.cell.testbed, x.cell.task) in set(tasks)}
    order = [*first, *(m for m in KNOWN_ORDER if m not in first)]
    rest = sorted(present - set(order))
    return Grid.of(lines, tasks, [m for m in order if m in first or m in present] + rest)


def make_table(which: str, lines: Iterable[Line], selection: Selection, with_paper: bool) -> Table:
    """The paper's Table 1 or 2 from our lines, or one of a testbed of any name."""
    paper = read_paper_table(int(which)) if which in ("1", "2") else None
    grid = make_grid(which, [line for line in lines if selection.holds(line.cell)], paper)
    main = find_main_methods(grid, paper)
    body = []
    for task in grid.tasks:
        winners = find_best(grid, task, main)
        theirs = paper.auc[task] if paper is not None and with_paper else {}
        entries = [
            Entry(add_paper(format_number(grid.mean(task, m)), theirs.get(m)), m in winners)
            for m in grid.methods
        ]
        body.append([Entry(task[0]), Entry(task[1]), *entries])
    shown = paper if with_paper else None
    header = ["testbed", "task", *grid.methods]
    foot = Foot(grid, main, shown).rows()
    return Table(header, body, foot, write_notes(grid, paper, selection, with_paper))


def find_main_methods(grid: Grid, paper: PaperTable | None) -> list[str]:
    """Those that compete: not the ablations, and beside a table of the paper's only its own."""
    columns = paper.methods if paper is not None else grid.methods
    return [m for m in columns if m not in ABLATIONS]


def write_notes(
    grid: Grid, paper: PaperTable | None, selection: Selection, with_paper: bool
) -> list[str]:
    sentences = [
        f"Preset {selection.preset}, protocol {selection.protocol}"
        + (f", contamination {selection.contamination:g}" if selection.contamination else "")
        + f", {format_sizes(grid, selection.preset)}. Mean test AUROC over seeds; the best of the "
        "main methods in bold (ablations aside).",
        "Rows of means and ranks are over the tasks that all main methods have. p-values: "
        "one-sided Wilcoxon signed-rank test that ST-SSAD is "
        "better than the column, over task x seed pairs (not independent: seeds share images) "
        "and over task means, each over all seeds of a method. The deviation is between seeds, of "
        "the mean over tasks.",
        "MMD with an RBF kernel, its bandwidth the median squared distance.",
    ]
    if paper is not None and with_paper:
        sentences.append(f"In parentheses the paper's: {paper.source}.")
    if paper is not None and (missing := len(paper.auc) - len(grid.tasks)):
        sentences.append(f"{missing} of the paper's {len(paper.auc)} tasks have no result here.")
    return sentences


def format_sizes(grid: Grid, preset: str) -> str:
    """Image size and width of the network, which an AUROC can't be read without."""
    sizes = []
    for testbed in dict.fromkeys(bed for bed, _ in grid.tasks):
        settings = preset_settings(testbed, preset)
        width = f", width {settings.width}" if isinstance(settings, Settings) else ""
        sizes.append(f"{settings.image_size} px{width}")
    return "; ".join(dict.fromkeys(sizes))


def task_groups(grid: Grid) -> dict[str, list[Task]]:
    """The tasks to judge by, and those that settings were compared on, where there were any."""
    development = [t for t in grid.tasks if t[1] in DEVELOPMENT.get(t[0], ())]
    if not development:
        return {}
    judging = [t for t in grid.tasks if t not in development]
    return {"judging": judging, "development": development}


@dataclass(frozen=True)
class Foot:
    """The rows below a table's body, which sum up each column."""

    grid: Grid
    main: list[str]  # the methods that compete
    paper: PaperTable | None  # None: the paper's numbers aren't printed

    def rows(self) -> list[list[Entry]]:
        complete = self.grid.common(self._ranked)
        groups = {
            name: [task for task in tasks if task in complete]
            for name, tasks in task_groups(self.grid).items()
        }
        means = [self._mean_row("", complete)]
        means += [self._mean_row(f"{name} ", tasks) for name, tasks in groups.items()]
        return [*means, *self._rank_rows(), *self._p_rows(groups), *self._count_rows()]

    @property
    def _present(self) -> list[str]:
        return self.grid.present(self.grid.methods)

    @property
    def _ranked(self) -> list[str]:
        return self.grid.present(self.main)

    @property
    def _others(self) -> list[str]:
        """What ours is compared with."""
        return [m for m in self._present if m != OURS and OURS in self._present]

    def _row(self, name: str, values: Mapping[str, str]) -> list[Entry]:
        return [Entry(name), Entry(""), *(Entry(values.get(m, "")) for m in self.grid.methods)]

    def _mean_row(self, group: str, tasks: Sequence[Task]) -> list[Entry]:
        means = {
            m: format_number(average([self.grid.mean(t, m) for t in tasks]))
            for m in self._present
            if all((t, m) in self.grid.auc for t in tasks)
        }
        return self._row(f"mean ({len(tasks)} {group}tasks)", means)

    def _rank_rows(self) -> list[list[Entry]]:
        grid, ranked = self.grid, self._ranked
        deviations = {m: grid.spread(m) for m in self._present}
        ranks = {m: f"{r:.2f}" for m, r in grid.ranks(ranked).items() if not math.isnan(r)}
        return [
            self._row(
                "deviation between seeds",
                {m: format_number(x) for m, x in deviations.items() if not math.isnan(x)},
            ),
            self._row("wins", {m: str(n) for m, n in grid.wins(ranked).items()}),
            self._row(f"average rank ({len(grid.common(ranked))} tasks)", ranks),
        ]

    def _p_rows(self, groups: Mapping[str, Sequence[Task]]) -> list[list[Entry]]:
        printed = {} if self.paper is None else self.paper.p_values
        pairs = {m: self.grid.pairs(m) for m in self._others}
        p_values = {m: add_paper(format_p(p_value(*pairs[m])), printed.get(m), 4) for m in pairs}
        rows = [
            self._row("p (task x seed)", p_values),
            self._row("pairs", {m: str(len(pairs[m][0])) for m in pairs}),
            self._p_row("", self.grid.tasks),
        ]
        if "judging" in groups:
            rows.append(self._p_row("judging ", groups["judging"]))
        return rows

    def _p_row(self, group: str, tasks: Sequence[Task]) -> list[Entry]:
        means = {m: self.grid.task_means(m, tasks) for m in self._others}
        p_values = {m: format_p(p_value(*pair)) for m, pair in means.items()}
        return self._row(f"p ({group}task means)", p_values)

    def _count_rows(self) -> list[list[Entry]]:
        grid = self.grid
        n_tasks = {m: len(grid.task_means(m, grid.tasks)[0]) for m in self._others}
        return [
            self._row("tasks", {m: str(n) for m, n in n_tasks.items()}),
            self._row("cells", {m: str(sum(grid.seeds(m))) for m in self._present}),
            self._row("seeds a task", {m: format_range(grid.seeds(m)) for m in self._present}),
        ]


def format_range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def average(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def format_number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def format_p(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def add_paper(text: str, other: float | None, digits: int = 3) -> str:
    return text if other is None else f"{text} ({other:.{digits}f})"
