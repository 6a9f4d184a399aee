"""The tables of docs/beyond-the-paper.md and README.md, from lines of the preset `imagenet`.

Each stands between <!-- table NAME --> and <!-- end --> and is replaced there.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from .cell import Line
from .methods import PRETRAINED

PRESET = "imagenet"
BAR_CONTAMINATION = 0.1
CRITERIA: dict[str, Callable[[dict[str, Any]], float]] = {
    "J": lambda start: start["J"],
    "L_val": lambda start: -start["mean_distance"],
    "score variance": lambda start: start["variance"],
}


def fill_tables(path: Path, lines: Sequence[Line]) -> None:
    from ..storage import replacing

    mine = [line for line in lines if line.cell.preset == PRESET and not line.cell.changes]
    text = path.read_text(encoding="utf-8")
    with replacing(path) as file:
        file.write(filled(text, mine))


def filled(text: str, lines: Sequence[Line]) -> str:
    for name, make in TABLES.items():
        pattern = rf"(<!-- table {name} -->\n).*?(<!-- end -->)"
        content = make(lines)
        if content.count("\n") < 2:  # no rows: these results have none for it
            continue
        text = re.sub(pattern, lambda m: f"{m[1]}{content}\n{m[2]}", text, flags=re.S)  # noqa: B023
    return text


def selected(
    lines: Sequence[Line], method: str, protocol: str, contamination: float | None
) -> dict[tuple[str, str], list[Line]]:
    """Lines by task; tile before bottle."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        c = line.cell
        if (c.method, c.protocol, c.contamination) == (method, protocol, contamination):
            found.setdefault((c.testbed, c.task), []).append(line)
    return dict(sorted(found.items(), reverse=True))


def seeds_of(lines: Sequence[Line] | None) -> list[int]:
    return sorted(line.cell.seed for line in lines or [])


def rows_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def main_table(lines: Sequence[Line]) -> str:
    """Ours beside what a user would pick instead: inductive, a tenth of the pool anomalous."""
    methods = ("Frozen", "PatchCore", PRETRAINED)
    found = {m: selected(lines, m, "inductive", BAR_CONTAMINATION) for m in methods}
    ours = found[PRETRAINED]
    tasks = [
        t for t in ours if all(seeds_of(found[m].get(t)) == seeds_of(ours[t]) for m in methods)
    ]
    head = ["task", *methods, "image-level", "patches", "type", "J", "z", "seeds"]
    rows, columns = [], []
    for task in tasks:
        of_task = ours[task]
        values = [mean(x.auc for x in found[m][task]) for m in methods]
        values += [mean(x.details[f"auc {part}"] for x in of_task) for part in ("image", "patches")]
        columns.append(values)
        facts = [
            types(of_task),
            *(f"{mean(x.details[name] for x in of_task):{form}}"
              for name, form in (("J", ".2f"), ("z", ".1f"))),
            str(len(of_task)),
        ]  # fmt: skip
        rows.append(["/".join(task), *map(digits, values), *facts])
    if columns:
        means = [mean(column) for column in zip(*columns, strict=True)]
        rows.append(["**mean**", *(f"**{digits(v)}**" for v in means), "", "", "", ""])
    return rows_text(head, rows)


def digits(value: float) -> str:
    return f"{value:.4f}"


def types(lines: Sequence[Line]) -> str:
    """Those that were chosen, the most frequent first."""
    names = [str(line.learned["type"]) for line in lines]
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{name} {counts[name]}" for name in sorted(counts, key=lambda n: -counts[n]))


def criteria_table(lines: Sequence[Line]) -> str:
    """The score of the whole image, its direction chosen in different ways."""
    shares = sorted({x.cell.contamination for x in lines if x.cell.contamination is not None})
    head = ["pool", "protocol", "none (GDE)", *CRITERIA, "J, with the fallback", "oracle", "fits"]
    rows = []
    for share in shares:
        for protocol in ("inductive", "transductive"):
            mine = [x for of_task in selected(lines, PRETRAINED, protocol, share).values()
                    for x in of_task]  # fmt: skip
            if mine:
                rows.append([f"{100 * share:.0f} %", protocol, *choices(mine)])
    return rows_text(head, rows)


def choices(lines: Sequence[Line]) -> list[str]:
    """Mean AUROC of no direction, of each criterion's choice, and of the best there was."""
    plain = mean(x.details["auc plain"] for x in lines)
    chosen = [mean(auc_of_choice(x, value) for x in lines) for value in CRITERIA.values()]
    kept = mean(x.details["auc image"] for x in lines)
    oracle = mean(max(x.details["auc plain"], *start_aucs(x)) for x in lines)
    fits = sum(x.details["weight"] > 0 for x in lines)
    values = [plain, *chosen, kept, oracle]
    return [*map(digits, values), f"{fits} of {len(lines)}"]


def start_aucs(line: Line) -> list[float]:
    return [line.details[f"auc start {k + 1}"] for k in range(len(line.starts))]


def auc_of_choice(line: Line, value: Callable[[dict[str, Any]], float]) -> float:
    best = max(range(len(line.starts)), key=lambda k: value(line.starts[k]))
    return start_aucs(line)[best]


def final_table(lines: Sequence[Line]) -> str:
    """The final score, at every contamination and by both protocols."""
    shares = sorted({x.cell.contamination for x in lines if x.cell.contamination is not None})
    head = ["pool", "protocol", "Frozen (GDE)", PRETRAINED, "worst task against Frozen", "tasks",
            "seeds"]  # fmt: skip
    rows = []
    for share in shares:
        for protocol in ("inductive", "transductive"):
            ours = selected(lines, PRETRAINED, protocol, share)
            frozen = selected(lines, "Frozen", protocol, share)
            tasks = [t for t in ours if seeds_of(frozen.get(t)) == seeds_of(ours[t])]
            if not tasks:
                continue
            pairs = {t: [mean(x.auc for x in f[t]) for f in (frozen, ours)] for t in tasks}
            worst = min(tasks, key=lambda t: pairs[t][1] - pairs[t][0])
            gap = pairs[worst][1] - pairs[worst][0]
            seeds = len(ours[tasks[0]])
            means = [mean(values) for values in zip(*pairs.values(), strict=True)]
            facts = [f"{gap:+.4f} ({'/'.join(worst)})", str(len(tasks)), str(seeds)]
            rows.append([f"{100 * share:.0f} %", protocol, *map(digits, means), *facts])
    return rows_text(head, rows)


def pixels_table(lines: Sequence[Line]) -> str:
    mine = [x for x in lines if x.cell.testbed == "pixels"]
    head = ["category", "PatchCore", PRETRAINED, "difference", "images", "seeds"]
    rows = []
    for category in sorted({x.cell.task for x in mine}, reverse=True):
        of_category = [x for x in mine if x.cell.task == category]
        values = [[x.auc for x in of_category if x.cell.method == m]
                  for m in ("PatchCore", PRETRAINED)]  # fmt: skip
        if all(values):
            theirs, ours = map(mean, values)
            rows.append([category, digits(theirs), digits(ours), f"{ours - theirs:+.4f}",
                         str(of_category[0].n_test), str(len(values[1]))])  # fmt: skip
    return rows_text(head, rows)


def short_table(lines: Sequence[Line]) -> str:
    """Means only: what a newcomer wants to know first."""
    methods = ("Frozen", "PatchCore", PRETRAINED)
    found = [selected(lines, m, "inductive", BAR_CONTAMINATION) for m in methods]
    tasks = [t for t in found[0] if len({str(seeds_of(f.get(t))) for f in found}) == 1]
    if not tasks:
        return rows_text(["mean AUROC", *methods], [])
    means = [digits(mean(mean(x.auc for x in f[t]) for t in tasks)) for f in found]
    seeds = len(found[-1][tasks[0]])
    beds = " and ".join(dict.fromkeys(bed for bed, _ in tasks))
    head = [
        f"mean AUROC, {len(tasks)} kinds of defects of MVTec AD {beds}, {seeds} seeds",
        *methods,
    ]
    return rows_text(head, [["10 % of the pool anomalous, inductive", *means]])


TABLES: dict[str, Callable[[Sequence[Line]], str]] = {
    "main": main_table,
    "criteria": criteria_table,
    "final": final_table,
    "pixels": pixels_table,
    "short": short_table,
}
