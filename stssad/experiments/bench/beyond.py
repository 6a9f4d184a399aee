"""The tables of docs/beyond-the-paper.md and README.md, from lines of the preset `imagenet`.

Each stands between <!-- table NAME --> and <!-- end --> and is replaced there.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from statistics import mean

from ...scoring.evidence import LEVEL
from .cell import Line
from .clean_pools import TESTBED as CLEAN
from .decisions import TESTBED as DECISIONS
from .decisions import format_categories, format_decisions
from .methods import PRETRAINED, RATES
from .pixels import TESTBED as PIXELS
from .pool import TESTBED as POOL
from .pool import format_pools
from .review import TESTBED as REVIEW
from .robustness import MIXED
from .robustness import TESTBED as ROBUSTNESS
from .tables import OURS, format_range

PRESET = "imagenet"
CONTAMINATION = 0.1
SMALL: dict[str, object] = {"image_size": 128}
# Of screw, brightness alone separates normal from defective test images: a trap, not a target.
TRAPS = ("screw",)
OTHER_BEDS = (ROBUSTNESS, CLEAN, PIXELS, DECISIONS, POOL)  # whose lines ask other questions
COLUMNS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("Frozen, 128 px", "Frozen", SMALL),
    ("Frozen, 256 px", "Frozen", {}),
    ("PatchCore, 128 px", "PatchCore", SMALL),
    ("PatchCore, 256 px", "PatchCore", {}),
    (PRETRAINED, PRETRAINED, {}),
)
NOT_RUN = "-"
ByTask = dict[tuple[str, str], list[Line]]


def fill_tables(text: str, lines: Sequence[Line]) -> str:
    """A document with its tables made again."""
    of_preset = [line for line in lines if line.cell.preset == PRESET]
    for name, make in TABLES.items():
        pattern = rf"(<!-- table {name} -->\n).*?(<!-- end -->)"
        content = make(lines if name.startswith("digits") else of_preset)
        if content.count("\n") < 2:  # no rows: these results have none for it
            continue
        text = re.sub(pattern, lambda m: f"{m[1]}{content}\n{m[2]}", text, flags=re.S)  # noqa: B023
    return text


def format_rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def format_auc(value: float) -> str:
    return f"{value:.4f}"


def format_percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def average(lines: Iterable[Line], name: str) -> float:
    return mean(line.details[name] for line in lines)


def format_average(lines: Sequence[Line], name: str) -> str:
    """In percent; lines of earlier versions may not have it."""
    known = [line for line in lines if name in line.details]
    return format_percent(average(known, name)) if known else NOT_RUN


def mean_auc(lines: Iterable[Line]) -> float:
    return mean(line.auc for line in lines)


# The main comparison: fits as a user's, one for each task and seed.


def of_method(lines: Sequence[Line], method: str, changes: dict[str, object]) -> ByTask:
    """Inductive, a tenth of the pool anomalous; by category and kind."""
    by_task: ByTask = {}
    for line in lines:
        c = line.cell
        same = (c.method, c.protocol, c.contamination) == (method, "inductive", CONTAMINATION)
        if same and c.changes == changes and c.testbed not in OTHER_BEDS:
            by_task.setdefault((c.testbed, c.task), []).append(line)
    return by_task


def compared(lines: Sequence[Line]) -> tuple[list[ByTask], list[tuple[str, str]]]:
    """Lines of each column, and the tasks that ours has."""
    columns = [of_method(lines, method, dict(changes)) for _, method, changes in COLUMNS]
    return columns, sorted(columns[-1], key=lambda t: (t[0] in TRAPS, t))


def mean_over(column: ByTask, tasks: Sequence[tuple[str, str]]) -> str:
    """A column's mean over tasks, if it has them all."""
    if not tasks or any(task not in column for task in tasks):
        return NOT_RUN
    return format_auc(mean(mean_auc(column[task]) for task in tasks))


def main_table(lines: Sequence[Line]) -> str:
    """Ours beside what a user would pick instead, and beside itself with nothing tuned."""
    columns, tasks = compared(lines)
    head = [
        "task",
        *(name for name, _, _ in COLUMNS[:-1]),
        "untuned",
        PRETRAINED,
        "type",
        "J",
        "p",
        "seeds of each",
    ]
    rows = []
    for task in tasks:
        ours = columns[-1][task]
        values = [mean_over(c, [task]) for c in columns[:-1]]
        values += [format_auc(average(ours, "auc untuned")), format_auc(mean_auc(ours))]
        evidence = [types(ours), f"{average(ours, 'J'):.2f}", span([x.details["p"] for x in ours])]
        seeds = "/".join(str(len(c.get(task, []))) for c in columns)
        rows.append(["/".join(task), *values, *evidence, seeds])
    for title, chosen in groups(tasks):
        if chosen:
            values = [mean_over(c, chosen) for c in columns]
            untuned = mean(average(columns[-1][t], "auc untuned") for t in chosen)
            cells = [*values[:-1], format_auc(untuned), values[-1]]
            rows.append([f"**{title}**", *(f"**{cell}**" for cell in cells), "", "", "", ""])
    return format_rows(head, rows)


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
        return format_rows(["mean AUROC", *names], [])
    categories = sorted({bed for bed, _ in tasks})
    seeds = format_range([len(columns[-1][task]) for task in tasks])
    head = [f"{len(tasks)} kinds of defects ({', '.join(categories)}), seeds {seeds}", *names]
    values = [mean_over(c, tasks) for c in columns]
    return format_rows(head, [["mean AUROC, 10 % of the pool anomalous, inductive", *values]])


# Robustness: the same score from features that are encoded once.


def asked(lines: Sequence[Line], **wanted: object) -> list[Line]:
    """Lines of the robustness testbed with just these changes."""
    return [x for x in lines if x.cell.testbed == ROBUSTNESS and x.cell.changes == wanted]


def is_trap(line: Line) -> bool:
    return line.cell.task.partition("/")[0] in TRAPS


def kinds_only(lines: Iterable[Line]) -> list[Line]:
    """One kind of defect in a pool, a tenth of it anomalous."""
    return [
        x
        for x in lines
        if x.cell.contamination == CONTAMINATION and not x.cell.task.endswith(MIXED)
    ]


def mixed_only(lines: Iterable[Line]) -> list[Line]:
    """All kinds in a pool, a tenth of it anomalous."""
    return [
        x for x in lines if x.cell.contamination == CONTAMINATION and x.cell.task.endswith(MIXED)
    ]


def group_by_task(lines: Iterable[Line]) -> ByTask:
    groups: ByTask = {}
    for line in lines:
        category, _, kind = line.cell.task.partition("/")
        groups.setdefault((category, kind), []).append(line)
    return groups


def over_tasks(lines: Sequence[Line], value: Callable[[Line], float]) -> float:
    """Mean over tasks of the mean over seeds."""
    return mean(mean(value(x) for x in of_task) for of_task in group_by_task(lines).values())


def lights_of(lines: Sequence[Line]) -> list[str]:
    lights = {str(x.cell.changes.get("light", "")) for x in lines if x.cell.testbed == ROBUSTNESS}
    return sorted(lights, key=lambda light: ("side" in light, "bright" in light, light))


def light_table(lines: Sequence[Line]) -> str:
    """Pool and test in other light than the normal images."""
    head = [
        "light of pool and test",
        "AUROC",
        "untuned",
        "flagged, of normal",
        "found",
        "tasks",
        "seeds",
    ]
    rows = []
    for light in lights_of(lines):
        of_light = kinds_only(asked(lines, **({"light": light} if light else {})))
        real = [x for x in of_light if not is_trap(x)]
        if not real:
            continue
        tasks = group_by_task(real)
        rows.append(
            [
                light or "as the normal images",
                format_auc(over_tasks(real, lambda x: x.auc)),
                format_auc(over_tasks(real, lambda x: x.details["auc untuned"])),
                format_percent(flagged(real, 0.01)),
                format_percent(over_tasks(real, lambda x: x.details["found 1 %"])),
                str(len(tasks)),
                format_range([len(seeds) for seeds in tasks.values()]),
            ]
        )
    return format_rows(head, rows)


def flagged(lines: Sequence[Line], rate: float) -> float:
    """Of all normal test images of all fits."""
    return over_tasks(lines, lambda x: x.details[f"flagged {100 * rate:g} %"])


def mixed_table(lines: Sequence[Line]) -> str:
    """Pools that mix all kinds of a category."""
    head = ["category", "pool", "AUROC", "untuned", "found at 1 %", "found in the pool"]
    head += ["false there", "untuned outliers", "seeds"]
    mixed = [x for x in asked(lines) if x.cell.task.endswith(MIXED)]
    rows = []
    for category in sorted({x.cell.task.partition("/")[0] for x in mixed}):
        for share in sorted({x.cell.contamination or 0 for x in mixed}):
            mine = [
                x
                for x in mixed
                if x.cell.contamination == share and x.cell.task.startswith(f"{category}/")
            ]
            if mine:
                rows.append(
                    [
                        category,
                        f"{100 * share:.0f} %",
                        format_auc(mean_auc(mine)),
                        format_auc(average(mine, "auc untuned")),
                        format_percent(average(mine, "found 1 %")),
                        format_average(mine, "pool found"),
                        format_average(mine, "pool false"),
                        f"{average(mine, 'outliers'):.0f} of {mine[0].n_pool}",
                        str(len(mine)),
                    ]
                )
    return format_rows(head, rows)


def calibration_table(lines: Sequence[Line]) -> str:
    """Are false alarm rates and contamination intervals what they say?"""
    fits = [x for x in asked(lines) if not x.cell.task.endswith(MIXED)]
    rows = []
    for title, chosen in (("all but screw", False), ("screw", True)):
        mine = [x for x in fits if is_trap(x) is chosen]
        for share in sorted({x.cell.contamination or 0 for x in mine}):
            fits_of_share = [x for x in mine if x.cell.contamination == share]
            rates = [format_percent(flagged(fits_of_share, rate)) for rate in RATES]
            low, true, high = ("contamination low", "anomalous", "contamination high")
            covered = mean(
                x.details[low] <= x.details[true] <= x.details[high] for x in fits_of_share
            )
            claims = mean(1 - x.details["looks clean"] for x in fits_of_share)
            rows.append(
                [
                    title,
                    f"{100 * share:.0f} %",
                    *rates,
                    format_percent(covered),
                    format_percent(claims),
                    str(len(fits_of_share)),
                ]
            )
    head = [
        "categories",
        "pool",
        "flagged at 1 %",
        "flagged at 5 %",
        "interval covers",
        "said to hold anomalies",
        "fits",
    ]
    return format_rows(head, rows)


def clean_table(lines: Sequence[Line]) -> str:
    """p-values of clean pools."""
    mine = [x for x in lines if x.cell.testbed == CLEAN]
    rows = []
    for light in sorted({str(x.cell.changes.get("light", "")) for x in mine}):
        p_values = [x.details["p"] for x in mine if x.cell.changes.get("light", "") == light]
        shares = [f"{sum(p <= level for p in p_values)}" for level in (LEVEL, 0.05, 0.1)]
        rows.append(
            [light or "as the normal images", str(len(p_values)), *shares, f"{min(p_values):.3f}"]
        )
    head = ["light of the pool", "clean pools", f"p ≤ {LEVEL:g}", "p ≤ 0.05", "p ≤ 0.1", "least p"]
    return format_rows(head, rows)


DEFAULTS = {
    "image nuisance": 5,
    "patch nuisance": 3,
    "highest": 3,
    "directions": 100.0,
    "sizes": 2,
}


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
    return format_rows(head, rows)


def settled_rows(name: str, default: float, values: dict[float, list[Line]]) -> list[list[str]]:
    seeds = min(
        len(of)
        for value, lines in values.items()
        if value != default
        for of in group_by_task(lines).values()
    )
    aucs = {
        value: {
            task: mean_auc(x for x in of if x.cell.seed < seeds)
            for task, of in group_by_task(lines).items()
            if task[0] not in TRAPS
        }
        for value, lines in values.items()
    }
    rows: list[list[str]] = []
    common = set.intersection(*(set(tasks) for tasks in aucs.values()))  # a run may have been cut
    aucs = {value: {t: auc for t, auc in of.items() if t in common} for value, of in aucs.items()}
    if len({task[0] for task in common}) < 2:
        return rows
    for left in sorted({task[0] for task in common}):

        def over(value: float, inside: bool, left: str = left) -> float:
            return mean(auc for task, auc in aucs[value].items() if (task[0] == left) is inside)

        best = max(aucs, key=lambda value: over(value, False))
        rows.append(
            [
                name,
                left,
                f"{best:g}",
                format_auc(over(best, True)),
                format_auc(over(default, True)),
                f"{default:g}",
            ]
        )
    return rows


def encoders_table(lines: Sequence[Line]) -> str:
    names = sorted({str(x.cell.changes["encoder"]) for x in lines if "encoder" in x.cell.changes})
    by_encoder = {
        name: [
            x
            for x in mixed_only(asked(lines, **({"encoder": name} if name else {})))
            if not is_trap(x) and x.cell.seed == 0
        ]
        for name in ["", *names]
    }
    of_each = {
        name: {x.cell.task.partition("/")[0]: x.auc for x in mine if x.cell.contamination == 0.1}
        for name, mine in by_encoder.items()
    }
    categories = sorted(set.intersection(*(set(aucs) for aucs in of_each.values())))
    rows = []
    for name, mine in by_encoder.items():
        aucs = {category: of_each[name][category] for category in categories}
        if names and aucs:
            values = [*(aucs[category] for category in categories), mean(aucs.values())]
            time = f"{average(mine, 'encoding ms'):.0f}"
            rows.append([name or "EfficientNetLite0", *map(format_auc, values), time])
    return format_rows(["encoder", *categories, "mean", "encoding, ms an image"], rows)


def pixels_table(lines: Sequence[Line]) -> str:
    mine = [x for x in lines if x.cell.testbed == PIXELS]
    head = [
        "category",
        "PatchCore, pixel AUROC",
        f"{PRETRAINED}, pixel AUROC",
        "PatchCore, AUPRO",
        f"{PRETRAINED}, AUPRO",
        "images",
        "seeds",
    ]
    rows = []
    for category in sorted({x.cell.task for x in mine}, reverse=True):
        both = [
            [x for x in mine if x.cell.task == category and x.cell.method == m]
            for m in ("PatchCore", PRETRAINED)
        ]
        if all(both):
            rows.append(
                [
                    category,
                    *(format_auc(mean_auc(x)) for x in both),
                    *(format_auc(average(x, "aupro")) for x in both),
                    str(both[0][0].n_test),
                    str(len(both[1])),
                ]
            )
    return format_rows(head, rows)


FORMS = ("before", "proposed", "random")  # of a review, as its lines name them


def review_table(lines: Sequence[Line]) -> str:
    """What twenty labels are worth."""
    mine = [x for x in lines if x.cell.testbed == REVIEW]
    head = ["category", "", "no labels", "20 labels as proposed", "20 at random", "seeds"]
    measures: dict[str, tuple[str, Callable[[float], str]]] = {
        "AUROC": ("auc", "{:.4f}".format),
        "recall at 1 % false alarms": ("recall", format_percent),
        "found at the threshold": ("found", format_percent),
        "wrongly flagged there": ("flagged", format_percent),
    }
    rows = []
    for task in sorted({x.cell.task for x in mine}):
        of_task = [x for x in mine if x.cell.task == task]
        for title, (name, format_value) in measures.items():
            values = [format_value(average(of_task, f"{name} {form}")) for form in FORMS]
            rows.append([task.partition("/")[0], title, *values, str(len(of_task))])
    return format_rows(head, rows)


def kinds_table(lines: Sequence[Line]) -> str:
    """Whether groups of flagged images agree with the true kinds of defects."""
    mine = [x for x in lines if x.cell.testbed == REVIEW]
    head = ["category", "kinds", "found", "adjusted Rand index", "seeds"]
    rows = []
    for task in sorted({x.cell.task for x in mine}):
        of_task = [x for x in mine if x.cell.task == task]
        counts = [f"{average(of_task, 'kinds'):.0f}", f"{average(of_task, 'kinds found'):.1f}"]
        index = f"{average(of_task, 'rand index'):.2f}"
        rows.append([task.partition("/")[0], *counts, index, str(len(of_task))])
    return format_rows(head, rows)


def decisions_table(lines: Sequence[Line]) -> str:
    """Rates that were asked for, and what was observed."""
    return format_decisions([line for line in lines if line.cell.testbed == DECISIONS])


def decisions_by_category(lines: Sequence[Line]) -> str:
    """The same for each category."""
    return format_categories([line for line in lines if line.cell.testbed == DECISIONS])


def pools_table(lines: Sequence[Line]) -> str:
    """What the pool teaches, by its size and contamination."""
    return format_pools([line for line in lines if line.cell.testbed == POOL])


def digits_table(lines: Sequence[Line]) -> str:
    """The default on SVHN, beside the paper's method on the same pools, at its own settings."""
    head = ["tasks", "untuned", PRETRAINED, "taught", f"{OURS} (paper's method)", "seeds of each"]
    rows = []
    of_digits = [x for x in lines if x.cell.testbed == "svhn" and not x.cell.changes]
    ours = [x for x in of_digits if (x.cell.method, x.cell.preset) == (PRETRAINED, PRESET)]
    papers = [x for x in of_digits if x.cell.method == OURS and x.cell.preset == "cpu"]
    for title, tasks in digit_tasks(ours).items():
        mine = [x for x in ours if x.cell.task in tasks]
        other = [x for x in papers if x.cell.task in tasks]
        seeds = [group_by_task(x) for x in (mine, other)]
        rows.append(
            [
                title,
                format_auc(over_tasks(mine, lambda x: x.details["auc untuned"])),
                format_auc(over_tasks(mine, lambda x: x.auc)),
                format_percent(over_tasks(mine, lambda x: x.details["taught"] > 0)),
                format_auc(over_tasks(other, lambda x: x.auc)),
                "/".join(format_range([len(x) for x in by_task.values()]) for by_task in seeds),
            ]
        )
    return format_rows(head, rows)


def digits_in_short(lines: Sequence[Line]) -> str:
    """The mean alone."""
    rows = digits_table(lines).splitlines()
    return "\n".join([*rows[:2], rows[-1]])


def digit_tasks(lines: Sequence[Line]) -> dict[str, set[str]]:
    """Each task, and all of them."""
    tasks = sorted({x.cell.task for x in lines})
    mean_of = {f"**mean of {len(tasks)}**": set(tasks)} if tasks else {}
    return {**{task: {task} for task in tasks}, **mean_of}


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
    "pools": pools_table,
    "digits": digits_table,
    "digits in short": digits_in_short,
    "decisions": decisions_table,
    "decisions by category": decisions_by_category,
}
