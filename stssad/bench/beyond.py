"""The tables of docs/beyond-the-paper.md and README.md, from lines of the preset `imagenet`.

Each stands between <!-- table NAME --> and <!-- end --> and is replaced there.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean

from ..scoring.evidence import LEVEL
from .cell import Line
from .clean_pools import TESTBED as CLEAN
from .methods import PRETRAINED, RATES
from .pixels import TESTBED as PIXELS
from .review import TESTBED as REVIEW
from .robustness import MIXED
from .robustness import TESTBED as ROBUSTNESS

PRESET = "imagenet"
CONTAMINATION = 0.1
SMALL: dict[str, object] = {"image_size": 128}
# Of screw, brightness alone separates normal from defective test images: a trap, not a target.
TRAPS = ("screw",)
COLUMNS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("Frozen, 128 px", "Frozen", SMALL),
    ("Frozen, 256 px", "Frozen", {}),
    ("PatchCore, 128 px", "PatchCore", SMALL),
    ("PatchCore, 256 px", "PatchCore", {}),
    (PRETRAINED, PRETRAINED, {}),
)
NOT_RUN = "-"
ByTask = dict[tuple[str, str], list[Line]]


def fill_tables(path: Path, lines: Sequence[Line]) -> None:
    from ..storage import replacing

    text = path.read_text(encoding="utf-8")
    with replacing(path) as file:
        file.write(filled(text, [line for line in lines if line.cell.preset == PRESET]))


def filled(text: str, lines: Sequence[Line]) -> str:
    for name, make in TABLES.items():
        pattern = rf"(<!-- table {name} -->\n).*?(<!-- end -->)"
        content = make(lines)
        if content.count("\n") < 2:  # no rows: these results have none for it
            continue
        text = re.sub(pattern, lambda m: f"{m[1]}{content}\n{m[2]}", text, flags=re.S)  # noqa: B023
    return text


def rows_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def digits(value: float) -> str:
    return f"{value:.4f}"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def average(lines: Iterable[Line], name: str) -> float:
    return mean(line.details[name] for line in lines)


def mean_auc(lines: Iterable[Line]) -> float:
    return mean(line.auc for line in lines)


# The main comparison: fits as a user's, one for each task and seed.


def of_method(lines: Sequence[Line], method: str, changes: dict[str, object]) -> ByTask:
    """Inductive, a tenth of the pool anomalous; by category and kind."""
    found: ByTask = {}
    for line in lines:
        c = line.cell
        same = (c.method, c.protocol, c.contamination) == (method, "inductive", CONTAMINATION)
        if same and c.changes == changes and c.testbed not in (ROBUSTNESS, CLEAN, PIXELS):
            found.setdefault((c.testbed, c.task), []).append(line)
    return found


def compared(lines: Sequence[Line]) -> tuple[list[ByTask], list[tuple[str, str]]]:
    """Lines of each column, and the tasks that ours has."""
    columns = [of_method(lines, method, dict(changes)) for _, method, changes in COLUMNS]
    return columns, sorted(columns[-1], key=lambda t: (t[0] in TRAPS, t))


def mean_over(column: ByTask, tasks: Sequence[tuple[str, str]]) -> str:
    """A column's mean over tasks, if it has them all."""
    if not tasks or any(task not in column for task in tasks):
        return NOT_RUN
    return digits(mean(mean_auc(column[task]) for task in tasks))


def main_table(lines: Sequence[Line]) -> str:
    """Ours beside what a user would pick instead, and beside itself with nothing tuned."""
    columns, tasks = compared(lines)
    head = ["task", *(name for name, _, _ in COLUMNS[:-1]), "untuned", PRETRAINED, "type", "J",
            "p", "seeds of each"]  # fmt: skip
    rows = []
    for task in tasks:
        ours = columns[-1][task]
        values = [mean_over(c, [task]) for c in columns[:-1]]
        values += [digits(average(ours, "auc untuned")), digits(mean_auc(ours))]
        told = [types(ours), f"{average(ours, 'J'):.2f}", span([x.details["p"] for x in ours])]
        seeds = "/".join(str(len(c.get(task, []))) for c in columns)
        rows.append(["/".join(task), *values, *told, seeds])
    for words, chosen in groups(tasks):
        if chosen:
            values = [mean_over(c, chosen) for c in columns]
            untuned = mean(average(columns[-1][t], "auc untuned") for t in chosen)
            cells = [*values[:-1], digits(untuned), values[-1]]
            rows.append([f"**{words}**", *(f"**{cell}**" for cell in cells), "", "", "", ""])
    return rows_text(head, rows)


def groups(tasks: Sequence[tuple[str, str]]) -> list[tuple[str, list[tuple[str, str]]]]:
    real = [t for t in tasks if t[0] not in TRAPS]
    magnetic = [t for t in tasks if t[0] == "mtd"]
    return [(f"mean of {len(real)}, without screw", real), ("magnetic tiles (mtd)", magnetic)]


def types(lines: Sequence[Line]) -> str:
    """Those that were chosen, the most frequent first."""
    names = [str(line.learned["type"]) for line in lines]
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{name} {counts[name]}" for name in sorted(counts, key=lambda n: -counts[n]))


def span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.1g}" if f"{low:.1g}" == f"{high:.1g}" else f"{low:.1g} to {high:.1g}"


def short_table(lines: Sequence[Line]) -> str:
    """Means only: what a newcomer wants to know first."""
    columns, tasks = compared(lines)
    tasks = [t for t in tasks if t[0] not in TRAPS]
    names = [name for name, _, _ in COLUMNS]
    if not tasks:
        return rows_text(["mean AUROC", *names], [])
    categories = sorted({bed for bed, _ in tasks})
    seeds = span_of_counts([len(columns[-1][task]) for task in tasks])
    head = [f"{len(tasks)} kinds of defects ({', '.join(categories)}), seeds {seeds}", *names]
    values = [mean_over(c, tasks) for c in columns]
    return rows_text(head, [["mean AUROC, 10 % of the pool anomalous, inductive", *values]])


# Robustness: the same score from features that are encoded once.


def asked(lines: Sequence[Line], **wanted: object) -> list[Line]:
    """Lines of the robustness testbed with just these changes."""
    return [x for x in lines if x.cell.testbed == ROBUSTNESS and x.cell.changes == wanted]


def is_trap(line: Line) -> bool:
    return line.cell.task.partition("/")[0] in TRAPS


def kinds_only(lines: Iterable[Line]) -> list[Line]:
    """One kind of defect in a pool, a tenth of it anomalous."""
    return [
        x for x in lines
        if x.cell.contamination == CONTAMINATION and not x.cell.task.endswith(MIXED)
    ]  # fmt: skip


def mixed_only(lines: Iterable[Line]) -> list[Line]:
    """All kinds in a pool, a tenth of it anomalous."""
    return [
        x for x in lines
        if x.cell.contamination == CONTAMINATION and x.cell.task.endswith(MIXED)
    ]  # fmt: skip


def by_task(lines: Iterable[Line]) -> ByTask:
    found: ByTask = {}
    for line in lines:
        category, _, kind = line.cell.task.partition("/")
        found.setdefault((category, kind), []).append(line)
    return found


def over_tasks(lines: Sequence[Line], value: Callable[[Line], float]) -> float:
    """Mean over tasks of the mean over seeds."""
    return mean(mean(value(x) for x in of_task) for of_task in by_task(lines).values())


def lights_of(lines: Sequence[Line]) -> list[str]:
    found = {str(x.cell.changes.get("light", "")) for x in lines if x.cell.testbed == ROBUSTNESS}
    return sorted(found, key=lambda light: ("side" in light, "bright" in light, light))


def light_table(lines: Sequence[Line]) -> str:
    """Pool and test in other light than the normal images."""
    head = ["light of pool and test", "AUROC", "untuned", "flagged, of normal", "found", "tasks",
            "seeds"]  # fmt: skip
    rows = []
    for light in lights_of(lines):
        found = kinds_only(asked(lines, **({"light": light} if light else {})))
        real = [x for x in found if not is_trap(x)]
        if not real:
            continue
        tasks = by_task(real)
        rows.append([
            light or "as the normal images", digits(over_tasks(real, lambda x: x.auc)),
            digits(over_tasks(real, lambda x: x.details["auc untuned"])),
            percent(flagged(real, 0.01)),
            percent(over_tasks(real, lambda x: x.details["found 1 %"])),
            str(len(tasks)), span_of_counts([len(seeds) for seeds in tasks.values()]),
        ])  # fmt: skip
    return rows_text(head, rows)


def span_of_counts(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def flagged(lines: Sequence[Line], rate: float) -> float:
    """Of all normal test images of all fits."""
    return over_tasks(lines, lambda x: x.details[f"flagged {100 * rate:g} %"])


def mixed_table(lines: Sequence[Line]) -> str:
    """Pools that mix all kinds of a category."""
    head = ["category", "pool", "AUROC", "untuned", "found at 1 %", "untuned outliers", "seeds"]
    mixed = [x for x in asked(lines) if x.cell.task.endswith(MIXED)]
    rows = []
    for category in sorted({x.cell.task.partition("/")[0] for x in mixed}):
        for share in sorted({x.cell.contamination or 0 for x in mixed}):
            mine = [x for x in mixed if x.cell.contamination == share
                    and x.cell.task.startswith(f"{category}/")]  # fmt: skip
            if mine:
                rows.append([
                    category, f"{100 * share:.0f} %", digits(mean_auc(mine)),
                    digits(average(mine, "auc untuned")), percent(average(mine, "found 1 %")),
                    f"{average(mine, 'outliers'):.0f} of {mine[0].n_pool}", str(len(mine)),
                ])  # fmt: skip
    return rows_text(head, rows)


def calibration_table(lines: Sequence[Line]) -> str:
    """Are false alarm rates and contamination intervals what they say?"""
    fits = [x for x in asked(lines) if not x.cell.task.endswith(MIXED)]
    rows = []
    for words, chosen in (("all but screw", False), ("screw", True)):
        mine = [x for x in fits if is_trap(x) is chosen]
        for share in sorted({x.cell.contamination or 0 for x in mine}):
            some = [x for x in mine if x.cell.contamination == share]
            rates = [percent(flagged(some, rate)) for rate in RATES]
            low, true, high = ("contamination low", "anomalous", "contamination high")
            covered = mean(x.details[low] <= x.details[true] <= x.details[high] for x in some)
            claims = mean(1 - x.details["looks clean"] for x in some)
            rows.append([words, f"{100 * share:.0f} %", *rates, percent(covered), percent(claims),
                         str(len(some))])  # fmt: skip
    head = ["categories", "pool", "flagged at 1 %", "flagged at 5 %", "interval covers",
            "said to hold anomalies", "fits"]  # fmt: skip
    return rows_text(head, rows)


def clean_table(lines: Sequence[Line]) -> str:
    """p-values of clean pools."""
    mine = [x for x in lines if x.cell.testbed == CLEAN]
    rows = []
    for light in sorted({str(x.cell.changes.get("light", "")) for x in mine}):
        found = [x.details["p"] for x in mine if x.cell.changes.get("light", "") == light]
        shares = [f"{sum(p <= level for p in found)}" for level in (LEVEL, 0.05, 0.1)]
        rows.append(
            [light or "as the normal images", str(len(found)), *shares, f"{min(found):.3f}"]
        )
    head = ["light of the pool", "clean pools", f"p ≤ {LEVEL:g}", "p ≤ 0.05", "p ≤ 0.1", "least p"]
    return rows_text(head, rows)


DEFAULTS = {
    "image nuisance": 5, "patch nuisance": 3, "highest": 3, "directions": 100.0, "sizes": 2,
}  # fmt: skip


def settled_table(lines: Sequence[Line]) -> str:
    """Each constant as it would be settled without a category, and what that category then has."""
    rows = []
    for name, default in DEFAULTS.items():
        values = {default: mixed_only(asked(lines))}
        for x in lines:
            if x.cell.testbed == ROBUSTNESS and set(x.cell.changes) == {name}:
                values.setdefault(x.cell.changes[name], []).append(x)
        if len(values) > 1:
            rows += settled_rows(name, default, values)
    head = ["constant", "left out", "settled on the others", "its AUROC there", "with ours", "ours"]
    return rows_text(head, rows)


def settled_rows(name: str, default: float, values: dict[float, list[Line]]) -> list[list[str]]:
    seeds = min(len(of) for value, found in values.items() if value != default
                for of in by_task(found).values())  # fmt: skip
    aucs = {
        value: {task: mean_auc(x for x in of if x.cell.seed < seeds)
                for task, of in by_task(found).items() if task[0] not in TRAPS}
        for value, found in values.items()
    }  # fmt: skip
    rows: list[list[str]] = []
    common = set.intersection(*(set(tasks) for tasks in aucs.values()))  # a run may have been cut
    aucs = {value: {t: auc for t, auc in of.items() if t in common} for value, of in aucs.items()}
    if len({task[0] for task in common}) < 2:
        return rows
    for left in sorted({task[0] for task in common}):

        def over(value: float, inside: bool, left: str = left) -> float:
            return mean(auc for task, auc in aucs[value].items() if (task[0] == left) is inside)

        best = max(aucs, key=lambda value: over(value, False))
        rows.append([name, left, f"{best:g}", digits(over(best, True)), digits(over(default, True)),
                     f"{default:g}"])  # fmt: skip
    return rows


def encoders_table(lines: Sequence[Line]) -> str:
    names = sorted({str(x.cell.changes["encoder"]) for x in lines if "encoder" in x.cell.changes})
    found = {
        name: [x for x in mixed_only(asked(lines, **({"encoder": name} if name else {})))
               if not is_trap(x) and x.cell.seed == 0]
        for name in ["", *names]
    }  # fmt: skip
    of_each = {
        name: {x.cell.task.partition("/")[0]: x.auc for x in mine if x.cell.contamination == 0.1}
        for name, mine in found.items()
    }
    categories = sorted(set.intersection(*(set(aucs) for aucs in of_each.values())))
    rows = []
    for name, mine in found.items():
        aucs = {category: of_each[name][category] for category in categories}
        if names and aucs:
            values = [*(aucs[category] for category in categories), mean(aucs.values())]
            time = f"{average(mine, 'encoding ms'):.0f}"
            rows.append([name or "EfficientNetLite0", *map(digits, values), time])
    return rows_text(["encoder", *categories, "mean", "encoding, ms an image"], rows)


def pixels_table(lines: Sequence[Line]) -> str:
    mine = [x for x in lines if x.cell.testbed == PIXELS]
    head = ["category", "PatchCore, pixel AUROC", f"{PRETRAINED}, pixel AUROC", "PatchCore, AUPRO",
            f"{PRETRAINED}, AUPRO", "images", "seeds"]  # fmt: skip
    rows = []
    for category in sorted({x.cell.task for x in mine}, reverse=True):
        both = [[x for x in mine if x.cell.task == category and x.cell.method == m]
                for m in ("PatchCore", PRETRAINED)]  # fmt: skip
        if all(both):
            rows.append([category, *(digits(mean_auc(x)) for x in both),
                         *(digits(average(x, "aupro")) for x in both),
                         str(both[0][0].n_test), str(len(both[1]))])  # fmt: skip
    return rows_text(head, rows)


FORMS = ("before", "proposed", "random")  # of a review, as its lines name them


def review_table(lines: Sequence[Line]) -> str:
    """What twenty marks are worth."""
    mine = [x for x in lines if x.cell.testbed == REVIEW]
    head = ["category", "", "no marks", "20 marks as proposed", "20 at random", "seeds"]
    measures: dict[str, tuple[str, Callable[[float], str]]] = {
        "AUROC": ("auc", "{:.4f}".format),
        "recall at 1 % false alarms": ("recall", percent),
        "found at the threshold": ("found", percent),
        "wrongly flagged there": ("flagged", percent),
    }
    rows = []
    for task in sorted({x.cell.task for x in mine}):
        some = [x for x in mine if x.cell.task == task]
        for words, (name, shown) in measures.items():
            values = [shown(average(some, f"{name} {form}")) for form in FORMS]
            rows.append([task.partition("/")[0], words, *values, str(len(some))])
    return rows_text(head, rows)


def kinds_table(lines: Sequence[Line]) -> str:
    """Whether kinds are told apart."""
    mine = [x for x in lines if x.cell.testbed == REVIEW]
    head = ["category", "kinds", "found", "adjusted Rand index", "seeds"]
    rows = []
    for task in sorted({x.cell.task for x in mine}):
        some = [x for x in mine if x.cell.task == task]
        counts = [f"{average(some, 'kinds'):.0f}", f"{average(some, 'kinds found'):.1f}"]
        index = f"{average(some, 'rand index'):.2f}"
        rows.append([task.partition("/")[0], *counts, index, str(len(some))])
    return rows_text(head, rows)


TABLES: dict[str, Callable[[Sequence[Line]], str]] = {
    "main": main_table,
    "short": short_table,
    "light": light_table,
    "mixed": mixed_table,
    "calibration": calibration_table,
    "clean": clean_table,
    "settled": settled_table,
    "encoders": encoders_table,
    "pixels": pixels_table,
    "review": review_table,
    "kinds": kinds_table,
}
