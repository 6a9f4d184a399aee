"""docs/results.md from the result lines: our numbers, the paper's, and a plain reading of both."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from ...settings import Settings
from ..testbeds.presets import preset_settings
from ..testbeds.synthetic import ASPECTS, SIZES
from .cell import Cell, Line, Store
from .methods import METHODS
from .table_formats import format_table
from .tables import (
    ABLATIONS,
    OURS,
    Grid,
    PaperTable,
    Selection,
    find_best,
    find_main_methods,
    format_number,
    format_range,
    make_grid,
    make_table,
    read_paper_table,
    task_groups,
)

AUGMENTED = (64, 128, 256, 512)
COMPARED = (
    "image_size",
    "width",
    "batch_size",
    "warm_start_epochs",
    "theta_updates",
    "max_iterations",
    "a_step_size",
    "a_noise",
    "end_state",
    "final_updates",
    "theta_decay",
    "val_train_samples",
    "val_augmented_samples",
    "val_pool_samples",
)


def document(lines: Sequence[Line], preset: str = "cpu", notes: str = "") -> str:
    """All of it, as Markdown; `notes` is the only text that a person wrote about these data."""
    mine = [line for line in lines if line.cell.preset == preset]
    sections = [
        heading(mine, preset),
        set_up(mine, preset, notes),
        main_table("1", "Table 1: MVTec AD", mine, preset),
        protocols(mine),
        main_table("2", "Table 2: SVHN", mine, preset),
        demonstrative(mine),
        robustness(mine),
        restarts(mine),
        variants(mine),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def heading(lines: Sequence[Line], preset: str) -> str:
    beds = {line.cell.testbed for line in lines}
    hours = sum(line.seconds for line in lines) / 3600
    return (
        "# Results\n\n"
        "Made of result lines (and the NOTES.md beside them), not edited by hand. "
        "[benchmark.md](benchmark.md) says how the lines were made and what each method does. "
        f"{len(lines)} cells ({', '.join(sorted(beds))}), {hours:.1f} hours of one core, "
        f"preset `{preset}`."
    )


def set_up(lines: Sequence[Line], preset: str, notes: str) -> str:
    beds = {"tile": "MVTec AD", "svhn": "SVHN", "demonstrative": "planted"}
    columns = {f"`{preset}`, {name}": preset_settings(bed, preset) for bed, name in beds.items()}
    columns["paper, MVTec AD"] = Settings.paper_mvtec()
    columns["paper, SVHN"] = Settings.paper_svhn()
    rows = ["| setting | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in COMPARED:
        found = (asdict(settings)[name] for settings in columns.values())
        cells = ("all" if value is None else str(value) for value in found)
        rows.append(f"| `{name}` | " + " | ".join(cells) + " |")
    sizes = ["| testbed | protocol | to train | pool | test |", "|---|---|---|---|---|"]
    for bed, protocol in sorted({(x.cell.testbed, x.cell.protocol) for x in lines}):
        of_bed = [x for x in lines if (x.cell.testbed, x.cell.protocol) == (bed, protocol)]
        counts = (
            format_range([getattr(x, f"n_{part}") for x in of_bed])
            for part in ("train", "pool", "test")
        )
        sizes.append(f"| {bed} | {protocol} | " + " | ".join(counts) + " |")
    return "## What differs from the paper\n\n" + "\n\n".join(
        part for part in ("\n".join(rows), notes.strip(), "Images:", "\n".join(sizes)) if part
    )


def main_table(which: str, title: str, lines: Sequence[Line], preset: str) -> str:
    selection = Selection(preset=preset)
    made = make_table(which, lines, selection, with_paper=True)
    if not made.body:
        return ""
    paper = read_paper_table(int(which))
    grid = make_grid(which, [line for line in lines if selection.holds(line.cell)], paper)
    parts = [f"## {title}", format_table(made, "markdown"), reading(grid, paper)]
    return "\n\n".join(part for part in parts if part)


def reading(grid: Grid, paper: PaperTable) -> str:
    """Where the method wins and where it fails, in sentences made of the numbers."""
    main = grid.present(find_main_methods(grid, paper))
    tasks = grid.common(main)
    others = [m for m in main if m != OURS]
    if OURS not in main or not others or not tasks:
        return ""
    means = {m: mean(grid.mean(t, m) for t in tasks) for m in main}
    order = sorted(main, key=lambda m: -means[m])
    ahead = [t[1] for t in tasks if OURS in find_best(grid, t, main)]
    gaps = {t: grid.mean(t, OURS) - max(grid.mean(t, m) for m in others) for t in tasks}
    worst = min(gaps, key=lambda t: gaps[t])
    theirs = mean(paper.auc[t][OURS] for t in tasks)
    sentences = [
        f"**Reading.** Over {len(tasks)} tasks {OURS} has mean AUROC {means[OURS]:.3f}, number "
        f"{order.index(OURS) + 1} of {len(main)} (the best is {order[0]} with "
        f"{means[order[0]]:.3f}); the paper's on these tasks is {theirs:.3f}.",
        f"It is best, or equal to the best, in {len(ahead)} tasks"
        + (f" ({', '.join(ahead)})." if ahead else "."),
    ]
    if gaps[worst] < 0:
        sentences.append(
            f"It falls furthest behind on {worst[1]}: {grid.mean(worst, OURS):.3f}, "
            f"{-gaps[worst]:.3f} below the best method there."
        )
    forms = [m for m in (OURS, *ABLATIONS) if all((t, m) in grid.auc for t in tasks)]
    tuned = (f"{m} {mean(grid.mean(t, m) for t in tasks):.3f}" for m in forms)
    sentences.append("Of its variants: " + ", ".join(tuned) + ".")
    for name, of in task_groups(grid).items():
        found = ", ".join(
            f"{m} {mean(grid.mean(t, m) for t in of):.3f}"
            for m in grid.present(grid.methods)
            if m.startswith((OURS, "R")) and all((t, m) in grid.auc for t in of)
        )
        sentences.append(f"On the {len(of)} {name} tasks: {found}.")
    if below := [f"{t[1]} {grid.mean(t, OURS):.3f}" for t in tasks if grid.mean(t, OURS) < 0.5]:
        sentences.append(f"Worse than chance: {', '.join(below)}.")
    return " ".join(sentences)


def protocols(lines: Sequence[Line]) -> str:
    """ST-SSAD with the pool as the test set, and with one half each."""
    mine = [
        line
        for line in lines
        if line.cell.method == OURS and not line.cell.changes and line.cell.contamination is None
    ]
    tasks = sorted({(x.cell.testbed, x.cell.task) for x in mine if x.cell.protocol == "inductive"})
    if not tasks:
        return ""
    rows = ["| testbed | task | transductive | inductive | seeds |", "|---|---|---|---|---|"]
    columns: dict[str, list[float]] = {"transductive": [], "inductive": []}
    for bed, task in tasks:
        values = {
            protocol: [
                x.auc
                for x in mine
                if (x.cell.testbed, x.cell.task, x.cell.protocol) == (bed, task, protocol)
            ]
            for protocol in columns
        }
        for protocol, found in values.items():
            columns[protocol].append(mean(found))
        cells = " | ".join(format_number(mean(found)) for found in values.values())
        rows.append(f"| {bed} | {task} | {cells} | {len(values['inductive'])} |")
    totals = " | ".join(format_number(mean(values)) for values in columns.values())
    rows.append(f"| mean | | {totals} | |")
    return (
        "## Both protocols\n\nTransductive: the pool is the test set. Inductive: tuning and "
        f"choosing see one half of it, the AUROC is of the other. {OURS}:\n\n" + "\n".join(rows)
    )


def mean(values: Iterable[float]) -> float:
    found = [v for v in values if not math.isnan(v)]
    return sum(found) / len(found) if found else math.nan


def demonstrative(lines: Sequence[Line]) -> str:
    mine = [
        line
        for line in lines
        if line.cell.testbed == "demonstrative"
        and line.cell.method == OURS
        and not line.cell.changes
    ]
    first = {line.cell.task: line for line in mine if line.cell.seed == 0}
    if not first:
        return ""
    seeds = len({line.cell.seed for line in mine})
    return (
        "## The 25 demonstrative tasks\n\n"
        "CutDiff's patch planted in half of 128 crops of a texture (grass), five sizes x five "
        "aspects; learned size and aspect of the chosen restart, seed 0:\n\n"
        f"{learned_rows(first)}\n\n{planted_against_learned(first)}\n\n"
        "![Learned against planted](figures/demonstrative.png)\n\n"
        f"The size on its way, {seeds} seeds:\n\n![Trajectories](figures/trajectories.png)\n\n"
        "Embeddings of the task 0.04/1 under the chosen restart:\n\n![t-SNE](figures/tsne.png)"
    )


def learned_rows(first: Mapping[str, Line]) -> str:
    """What was learned, by planted size and aspect."""
    head = "| planted size | " + " | ".join(f"aspect {x:g}" for x in ASPECTS) + " |"
    rows = [head, "|---" * (len(ASPECTS) + 1) + "|"]
    for size in SIZES:
        row = (first.get(f"{size:g}/{aspect:g}") for aspect in ASPECTS)
        cells = (f"{x.learned['size']:.3f}, {x.learned['aspect']:.2f}" if x else "-" for x in row)
        rows.append(f"| {size:g} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def planted_against_learned(first: Mapping[str, Line]) -> str:
    """How close they are, in sentences."""
    from scipy.stats import spearmanr

    factors, ranks = {}, {}
    for k, name in enumerate(("size", "aspect")):
        planted = [float(task.split("/")[k]) for task in first]
        learned = [line.learned[name] for line in first.values()]
        factors[name] = [fold(x / p) for x, p in zip(learned, planted, strict=True)]
        ranks[name] = float(spearmanr(planted, learned)[0])
    perfect = sum(round(x.auc, 2) == 1 for x in first.values())
    return (
        f"AUROC 1.00 in {perfect} of {len(first)} tasks, "
        f"{min(x.auc for x in first.values()):.3f} at least (the paper: 1.00 in all). "
        f"The learned size is off by a factor of {np.median(factors['size']):.2f} in the median, "
        f"{max(factors['size']):.2f} at most; the aspect by {np.median(factors['aspect']):.2f} and "
        f"{max(factors['aspect']):.2f}. Rank correlation with what was planted: size "
        f"{ranks['size']:.2f}, aspect {ranks['aspect']:.2f}."
    )


def fold(ratio: float) -> float:
    """A factor, whichever way."""
    return max(ratio, 1 / ratio)


def robustness(lines: Sequence[Line]) -> str:
    """Average ranks of 64 to 512 augmented images in L_val."""
    varied: list[Line] = []
    for line in lines:
        n = line.cell.changes.get("val_augmented_samples")
        plain = line.cell.method == OURS and line.cell.protocol == "transductive"
        if plain and len(line.cell.changes) == 1 and n in AUGMENTED:
            varied.append(replace(line, cell=replace(line.cell, method=str(n), changes={})))
    if not varied:
        return ""
    tasks = sorted({(x.cell.testbed, x.cell.task) for x in varied})
    names = [str(n) for n in AUGMENTED]
    grid = Grid.of(varied, tasks, names)
    ranks = grid.ranks(names)
    rows = ["| task | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for task in grid.tasks:
        cells = " | ".join(format_number(grid.mean(task, n)) for n in names)
        rows.append(f"| {task[0]}/{task[1]} | {cells} |")
    rows.append("| average rank | " + " | ".join(f"{ranks[n]:.1f}" for n in names) + " |")
    seeds = len({x.cell.seed for x in varied})
    usual = asdict(preset_settings(tasks[0][0], varied[0].cell.preset))["val_augmented_samples"]
    return (
        f"## Augmented images in L_val\n\nAUROC of {OURS} with so many of them ({seeds} seed(s); "
        f"the preset has {usual}); the paper's average ranks on "
        "the eight kinds of cable are 2.6, 2.3, 2.5, 2.4:\n\n" + "\n".join(rows)
    )


def restarts(lines: Sequence[Line]) -> str:
    """How many restarts shrank to the identity, and whether the detector kept up with `a`."""
    head = "| testbed | restarts | collapsed | tasks x seeds with no other | L_trn of the chosen |"
    rows = [head, "|---|---|---|---|---|"]
    mine = [x for x in lines if x.cell.method == OURS and not x.cell.changes and x.starts]
    for bed in sorted({x.cell.testbed for x in mine}):
        here = [x for x in mine if x.cell.testbed == bed and x.cell.protocol == "transductive"]
        flags = [start["collapsed"] for x in here for start in x.starts]
        lost = sum(all(start["collapsed"] for start in x.starts) for x in here)
        loss = float(np.median([chosen_loss(x) for x in here]))
        rows.append(f"| {bed} | {len(flags)} | {sum(flags)} | {lost} of {len(here)} | {loss:.2f} |")
    return (
        "## Restarts that collapse\n\nA restart whose training loss ends near ln 2 = 0.69 or "
        "above, or whose augmentation moves an image's embedding by less than half the distance "
        "between two normal images, has tuned its augmentation away ([paper-map.md](paper-map.md), "
        '"The pull to the identity"); it is chosen only where no other is left. '
        f"{OURS}, transductive, L_trn the median:\n\n" + "\n".join(rows)
    )


def variants(lines: Sequence[Line]) -> str:
    """ST-SSAD with another setting or another form of its augmentation, beside the preset's."""
    usual = {
        (x.cell.testbed, x.cell.task, x.cell.seed): x
        for x in lines
        if x.cell.method == OURS and not x.cell.changes and is_plain(x.cell)
    }
    found: dict[tuple[str, str], list[tuple[Line, Line]]] = {}
    for line in lines:
        cell = line.cell
        variant = format_variant(cell)
        same = usual.get((cell.testbed, cell.task, cell.seed))
        if variant and same is not None and is_plain(cell):
            found.setdefault((cell.testbed, variant), []).append((line, same))
    if not found:
        return ""
    rows = [
        "| testbed | instead of the preset's | tasks x seeds | AUROC | preset's | difference |"
        " seconds | preset's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (bed, variant), pairs in sorted(found.items()):
        other, preset = (mean(pair[k].auc for pair in pairs) for k in (0, 1))
        seconds = (float(np.median([pair[k].seconds for pair in pairs])) for k in (0, 1))
        n_tasks, n_seeds = (len({getattr(x.cell, of) for x, _ in pairs}) for of in ("task", "seed"))
        cells = [f"{other:.3f}", f"{preset:.3f}", f"{other - preset:+.3f}"]
        cells += [f"{each:.0f}" for each in seconds]
        rows.append(f"| {bed} | {variant} | {n_tasks} x {n_seeds} | " + " | ".join(cells) + " |")
    return (
        f"## What settings bring\n\n{OURS} with one thing changed (`--change`, or a form of "
        "`benchmarks/variants.py` or `variant_encoders.py`), against the same tasks and seeds at "
        "the preset; on SVHN the development tasks. Transductive; seconds of one core, the "
        "median (variants ran beside other work, some at two or three times their own time).\n\n"
        + "\n".join(rows)
    )


def is_plain(cell: Cell) -> bool:
    return cell.protocol == "transductive" and cell.contamination is None


def format_variant(cell: Cell) -> str:
    """What a cell of ST-SSAD does differently; empty for the preset's, and other methods'."""
    if cell.method == OURS:
        return ", ".join(f"`{name}={value}`" for name, value in cell.changes.items())
    if cell.method not in METHODS and not cell.changes:  # of `benchmarks/`
        return f"`{cell.method.removeprefix(f'{OURS}[').removesuffix(']')}`"
    return ""


def chosen_loss(line: Line) -> float:
    """L_trn around the best state of the restart that was chosen."""
    learned = {name: value for name, value in line.learned.items() if name != "type"}
    chosen = [s for s in line.starts if s["learned"] == learned] or line.starts
    return float(chosen[0]["losses"][0])


def notes_beside(results: Path) -> str:
    """What a person wrote about these results, if there is something."""
    path = results / "NOTES.md"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def write_document(results: Path, out: Path, preset: str = "cpu") -> None:
    from ...storage.files import replacing

    text = document(Store(results).all_lines(), preset, notes_beside(results))
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as file:
        file.write(text)
