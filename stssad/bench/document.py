"""docs/results.md from the result lines: our numbers, the paper's, and a plain reading of both."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from ..settings import Settings
from ..testbeds.synthetic import AREAS, ASPECTS
from .cell import Line
from .tables import ABLATIONS, OURS, Grid, Selection, number_text, paper_table, rendered, table

AUGMENTED = (64, 128, 256, 512)
COMPARED = (
    "image_size", "width", "batch_size", "warm_start_epochs", "theta_updates", "max_iterations",
    "a_step_size", "val_train_samples", "val_augmented_samples", "val_pool_samples",
)  # fmt: skip


def document(lines: Sequence[Line], preset: str = "cpu") -> str:
    """All of it, as Markdown."""
    mine = [line for line in lines if line.cell.preset == preset]
    sections = [
        heading(mine, preset),
        set_up(),
        main_table(1, "Table 1: MVTec AD", mine, preset),
        protocols(mine),
        main_table(2, "Table 2: SVHN", mine, preset),
        demonstrative(mine),
        robustness(mine),
        starts(mine),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def heading(lines: Sequence[Line], preset: str) -> str:
    beds = {line.cell.testbed for line in lines}
    hours = sum(line.seconds for line in lines) / 3600
    return (
        "# Results\n\n"
        "Made by `stssad bench document` from the lines in `results/`; nothing here is typed by "
        "hand. [benchmark.md](benchmark.md) says how the lines were made and what each method "
        f"does. {len(lines)} cells ({', '.join(sorted(beds))}), {hours:.1f} hours of one core, "
        f"preset `{preset}`."
    )


def set_up() -> str:
    presets = (Settings.cpu(), Settings.paper_mvtec(), Settings.paper_svhn())
    cpu, mvtec, svhn = (asdict(settings) for settings in presets)
    rows = ["| setting | `cpu`, here | paper, MVTec AD | paper, SVHN |", "|---|---|---|---|"]
    for name in COMPARED:
        values = ("all" if s[name] is None else str(s[name]) for s in (cpu, mvtec, svhn))
        rows.append(f"| `{name}` | " + " | ".join(values) + " |")
    return (
        "## What differs from the paper\n\n" + "\n".join(rows) + "\n\n"
        "MVTec AD here is *tile*, from copies of 256 px. SVHN here is **grey** and from its test "
        "set alone, divided by a fixed seed: 512 digits of the normal class to train, 256 of it "
        "and 256 of the anomalous class as pool and test; the paper has colour and all digits. "
        "The paper ran five seeds on a GPU. So the paper's numbers stand beside ours for "
        "orientation; they are not a target that these settings could reach exactly."
    )


def main_table(number: int, title: str, lines: Sequence[Line], preset: str) -> str:
    selection = Selection(preset=preset)
    made = table(number, lines, selection, with_paper=True)
    if not made.body:
        return ""
    paper = paper_table(number)
    chosen = [line for line in lines if selection.holds(line.cell)]
    grid = Grid.of(chosen, list(paper.auc), paper.methods)
    return f"## {title}\n\n{rendered(made, 'markdown')}\n\n{reading(grid, number)}"


def reading(grid: Grid, number: int) -> str:
    """Where the method wins and where it fails, in sentences made of the numbers."""
    main = [m for m in grid.methods if m not in ABLATIONS]
    means = {m: float(np.nanmean(grid.means(m))) for m in main}
    order = sorted(main, key=lambda m: -means[m])
    ahead = [task for task in grid.tasks
             if grid.mean(task, OURS) >= max(grid.mean(task, m) for m in main)]  # fmt: skip
    gaps = {
        task: grid.mean(task, OURS) - max(grid.mean(task, m) for m in main if m != OURS)
        for task in grid.tasks
    }
    worst = min(gaps, key=lambda task: gaps[task])
    paper = paper_table(number)
    theirs = np.mean([paper.auc[task][OURS] for task in grid.tasks])
    below = [f"{t[1]} {grid.mean(t, OURS):.3f}" for t in grid.tasks if grid.mean(t, OURS) < 0.5]
    tuned = {m: float(np.nanmean(grid.means(m))) for m in (OURS, *ABLATIONS)}
    sentences = [
        f"**Reading.** By mean AUC {OURS} is number {order.index(OURS) + 1} of {len(main)} "
        f"({means[OURS]:.3f}; the best is {order[0]} with {means[order[0]]:.3f}); the paper's on "
        f"these tasks is {theirs:.3f}.",
        f"It is best in {len(ahead)} of {len(grid.tasks)} tasks"
        + (f" ({', '.join(t[1] for t in ahead)})." if ahead else "."),
        f"It falls furthest behind on {worst[1]}: {grid.mean(worst, OURS):.3f}, "
        f"{-gaps[worst]:.3f} below the best method there.",
        "Of its variants: " + ", ".join(f"{m} {v:.3f}" for m, v in tuned.items()) + ".",
    ]
    if below:
        sentences.append(f"Worse than chance: {', '.join(below)}.")
    return " ".join(sentences)


def protocols(lines: Sequence[Line]) -> str:
    """ST-SSAD with the pool as the test set, and with one half each."""
    mine = [line for line in lines if line.cell.method == OURS and not line.cell.changes
            and line.cell.contamination is None]  # fmt: skip
    tasks = sorted({(x.cell.testbed, x.cell.task) for x in mine if x.cell.protocol == "inductive"})
    if not tasks:
        return ""
    rows = ["| testbed | task | transductive | inductive | seeds |", "|---|---|---|---|---|"]
    columns: dict[str, list[float]] = {"transductive": [], "inductive": []}
    for bed, task in tasks:
        values = {
            protocol: [x.auc for x in mine
                       if (x.cell.testbed, x.cell.task, x.cell.protocol) == (bed, task, protocol)]
            for protocol in columns
        }  # fmt: skip
        for protocol, found in values.items():
            columns[protocol].append(mean(found))
        cells = " | ".join(number_text(mean(found)) for found in values.values())
        rows.append(f"| {bed} | {task} | {cells} | {len(values['inductive'])} |")
    totals = " | ".join(number_text(mean(values)) for values in columns.values())
    rows.append(f"| mean | | {totals} | |")
    return (
        "## Both protocols\n\nTransductive: the pool is the test set. Inductive: tuning and "
        f"choosing see one half of it, the AUC is of the other. {OURS}:\n\n" + "\n".join(rows)
    )


def mean(values: Iterable[float]) -> float:
    found = [v for v in values if not math.isnan(v)]
    return sum(found) / len(found) if found else math.nan


def demonstrative(lines: Sequence[Line]) -> str:
    from scipy.stats import spearmanr

    mine = [line for line in lines if line.cell.testbed == "demonstrative"
            and line.cell.method == OURS and not line.cell.changes]  # fmt: skip
    first = {line.cell.task: line for line in mine if line.cell.seed == 0}
    if not first:
        return ""
    head = "| planted area | " + " | ".join(f"aspect {x:g}" for x in ASPECTS) + " |"
    rows = [head, "|---" * (len(ASPECTS) + 1) + "|"]
    for area in AREAS:
        row = (first.get(f"{area:g}/{aspect:g}") for aspect in ASPECTS)
        cells = (f"{x.learned['area']:.3f}, {x.learned['aspect']:.2f}" if x else "-" for x in row)
        rows.append(f"| {area:g} | " + " | ".join(cells) + " |")
    planted = {t: tuple(map(float, t.split("/"))) for t in first}
    factors = [fold(x.learned["area"] / planted[t][0]) for t, x in first.items()]
    aspects = [fold(x.learned["aspect"] / planted[t][1]) for t, x in first.items()]
    ranks = []
    for k, name in enumerate(("area", "aspect")):
        true, found = [planted[t][k] for t in first], [x.learned[name] for x in first.values()]
        ranks.append(float(spearmanr(true, found)[0]))
    perfect = sum(round(x.auc, 2) == 1 for x in first.values())
    seeds = len({line.cell.seed for line in mine})
    return (
        "## The 25 demonstrative tasks\n\n"
        "CutDiff's patch planted in half of 128 crops of a texture (grass), five areas x five "
        "aspects; learned area and aspect of the chosen start, seed 0:\n\n" + "\n".join(rows)
        + f"\n\nAUC 1.00 in {perfect} of {len(first)} tasks, "
        f"{min(x.auc for x in first.values()):.3f} at least (the paper: 1.00 in all). "
        f"The learned area is off by a factor of {np.median(factors):.2f} in the median, "
        f"{max(factors):.2f} at most; the aspect by {np.median(aspects):.2f} and "
        f"{max(aspects):.2f}. Rank correlation with what was planted: area {ranks[0]:.2f}, aspect "
        f"{ranks[1]:.2f}.\n\n"
        "![Learned against planted](figures/demonstrative.png)\n\n"
        f"The area on its way, {seeds} seeds:\n\n![Trajectories](figures/trajectories.png)\n\n"
        "Embeddings of the task 0.04/1 under the chosen start:\n\n![t-SNE](figures/tsne.png)"
    )  # fmt: skip


def fold(ratio: float) -> float:
    """A factor, whichever way."""
    return max(ratio, 1 / ratio)


def robustness(lines: Sequence[Line]) -> str:
    """Average ranks of 64 to 512 augmented pictures in L_val."""
    varied: list[Line] = []
    for line in lines:
        n = line.cell.changes.get("val_augmented_samples")
        if line.cell.method == OURS and len(line.cell.changes) == 1 and n in AUGMENTED:
            varied.append(replace(line, cell=replace(line.cell, method=str(n), changes={})))
    if not varied:
        return ""
    tasks = sorted({(x.cell.testbed, x.cell.task) for x in varied})
    names = [str(n) for n in AUGMENTED]
    grid = Grid.of(varied, tasks, names)
    ranks = grid.ranks(names)
    rows = ["| task | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for task in grid.tasks:
        cells = " | ".join(number_text(grid.mean(task, n)) for n in names)
        rows.append(f"| {task[0]}/{task[1]} | {cells} |")
    rows.append("| average rank | " + " | ".join(f"{ranks[n]:.1f}" for n in names) + " |")
    seeds = len({x.cell.seed for x in varied})
    return (
        f"## Augmented pictures in L_val\n\nAUC of {OURS} with so many of them ({seeds} seed(s); "
        "the preset has " f"{Settings.cpu().val_augmented_samples}); the paper's average ranks on "
        "the eight kinds of cable are 2.6, 2.3, 2.5, 2.4:\n\n" + "\n".join(rows)
    )  # fmt: skip


def starts(lines: Sequence[Line]) -> str:
    """How many starts shrank to the identity."""
    rows = ["| testbed | starts | collapsed | tasks x seeds with no other |", "|---|---|---|---|"]
    mine = [x for x in lines if x.cell.method == OURS and not x.cell.changes and x.starts]
    for bed in sorted({x.cell.testbed for x in mine}):
        here = [x for x in mine if x.cell.testbed == bed and x.cell.protocol == "transductive"]
        flags = [start["collapsed"] for x in here for start in x.starts]
        lost = sum(all(start["collapsed"] for start in x.starts) for x in here)
        rows.append(f"| {bed} | {len(flags)} | {sum(flags)} | {lost} of {len(here)} |")
    return (
        "## Starts that collapse\n\nA start whose training loss ends near ln 2 has tuned its "
        'augmentation away ([paper-map.md](paper-map.md), "The pull to the identity"); it is '
        f"chosen only where no other is left. {OURS}, transductive:\n\n" + "\n".join(rows)
    )


def write_document(lines: Sequence[Line], out: Path, preset: str = "cpu") -> None:
    from ..storage import replacing

    with replacing(out) as file:
        file.write(document(lines, preset))
