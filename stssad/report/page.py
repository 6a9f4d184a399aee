"""The page of a run: what was found, in words first, then everything it rests on.

It reads what the run has saved, and nothing else.
"""

import base64
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..run import ADVICE, Run
from ..storage import intact, json_text, replacing
from ..summary import Summary
from .charts import Line, line_chart, scatter
from .kind_names import kind_names
from .material import KINDS, Material, jpeg
from .presentation import PRESENTATIONS, Presentation, finding, headline, learned_words

MOST_SHOWN = 3000  # images of a pool; of more, the least anomalous are only counted
LARGEST = 512  # pixels, of examples
N_COLOURS = 6  # that the page has for restarts


def write_report(run: Run) -> Path:
    """report.html in the run's folder."""
    from jinja2 import Environment, PackageLoader

    summary, material = run.summary(), Material.load(run.folder)
    environment = Environment(loader=PackageLoader("stssad.report", "."), autoescape=True)
    with intact(run.folder, ADVICE):
        told = content(summary, material, run.metadata, kind_names(run.folder))
        filled = environment.get_template("page.html").render(told)
    with replacing(run.report, "backslashreplace") as file:  # names that aren't UTF-8
        file.write(filled)
    return run.report


def content(
    s: Summary, material: Material, metadata: dict[str, Any], names: dict[int, str]
) -> dict[str, Any]:
    """Everything that the template fills in."""
    told = PRESENTATIONS[s.method]
    highest = np.argsort(-s.pool_scores, kind="stable")[: len(material.normal)].tolist()
    data = gallery_data(s, material, lambda i: in_page(material, i), names)
    return {
        "title": metadata["title"],
        "headline": headline(s),
        "finding": finding(s),
        "learned": learned_words(s),
        "type": s.candidates[s.chosen].augmentation if s.chosen is not None else "",
        "noun": s.noun,
        "warnings": s.warnings,
        "unreadable": metadata.get("unreadable", []),
        "normal": [data_uri(x) for x in material.normal],
        "augmented": [data_uri(x) for x in material.augmented],
        "highest": [in_page(material, i)[0] for i in highest],
        "data": as_script(data),
        "evidence": told.evidence(s),
        "scores": told.scores(s),
        "tuning": told.tuning,
        "restarts": [restart(c, s.chosen, told) for c in s.candidates],
        "columns": list(told.row(s.candidates[0])) if s.candidates else [],
        "trajectories": trajectories(s),
        "curves": [(curve(s, told, name), told.captions[name]) for name in told.curves],
        "threshold": readable(s.threshold),
        "false_alarms": f"{100 * s.false_alarms:g} %",
        "plane": scatter(material.plane.tolist(), material.plane_kind.tolist(), KINDS),
        "settings": settings_rows(s, metadata),
        "command": metadata.get("command", ""),
        "versions": versions(metadata),
    }


def gallery_data(
    s: Summary, material: Material, address: Callable[[int], tuple[str, str]],
    names: dict[int, str],
) -> dict[str, Any]:  # fmt: skip
    """All that the gallery's script needs; `address` gives an image's small and large form,
    `names` what the kinds are called."""
    p_values = s.p_values.tolist()
    items = []
    order = np.argsort(-s.pool_scores, kind="stable")
    shown = set(order[:MOST_SHOWN].tolist())
    for i, (name, score) in enumerate(zip(material.names, s.pool_scores.tolist(), strict=True)):
        image, full = address(i) if i in shown else ("", "")
        items.append({
            "i": i, "name": name, "score": score, "p": round(p_values[i], 6),
            "kind": int(material.kinds[i]), "image": image, "full": full,
            "map": material.map_text(i) if i in shown else "",
        })  # fmt: skip
    return {
        "items": items,
        "normal": sorted(round(x, 5) for x in s.normal_scores.tolist()),
        "threshold": s.threshold,
        "border": s.border,
        "floor": s.floor if math.isfinite(s.floor) else None,
        "mapSide": material.maps.shape[-1],
        "kindNames": {str(kind): words for kind, words in names.items()},
    }


def in_page(material: Material, i: int) -> tuple[str, str]:
    """Small inside the page itself; large from the file, where the page is opened beside it."""
    small = "data:image/jpeg;base64," + base64.b64encode(material.thumbnail(i)).decode()
    path = material.files[i]
    return small, Path(path).as_uri() if path else ""


def as_script(data: dict[str, Any]) -> str:
    """JSON that can't end the script element it stands in."""
    return json_text(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def restart(c: Any, chosen: int | None, told: Presentation) -> dict[str, Any]:
    cells = told.row(c)
    is_chosen = c.number == chosen
    last = "chosen" if is_chosen else cells.pop("")
    return {
        "number": c.number + 1,
        "colour": c.number % N_COLOURS,
        "cells": [*(value for name, value in cells.items() if name), last],
        "chosen": is_chosen,
    }


def trajectories(s: Summary) -> list[str]:
    """A chart for each learned value, over the iterations of every restart of the chosen type."""
    if s.chosen is None:
        return []
    charts = []
    alike = [c for c in s.candidates if c.augmentation == s.candidates[s.chosen].augmentation]
    for name in (each for each in alike[0].learned if each != "size"):  # area says the same
        lines = [
            Line(f"restart {c.number + 1}", [r.iteration for r in c.history],
                 [r.learned[name] for r in c.history], c.number % N_COLOURS, c.number == s.chosen)
            for c in alike
        ]  # fmt: skip
        label = name.replace("_deg", " (degrees)")
        positive = all(y > 0 for line in lines for y in line.ys)
        charts.append(line_chart(lines, label, log=positive and not name.endswith("_deg")))
    return charts


def curve(s: Summary, told: Presentation, name: str) -> str:
    lines = [
        Line(f"restart {c.number + 1}, {c.augmentation}", *told.curves[name](c),
             c.number % N_COLOURS, c.number == s.chosen)
        for c in s.candidates
    ]  # fmt: skip
    return line_chart(lines, name)


def settings_rows(s: Summary, metadata: dict[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, Any]] = [
        ("method", s.method),
        ("seed", s.seed),
        ("augmentation", ", ".join(s.types)),
        ("encoder", s.encoder),
        ("normal images", metadata.get("n_normal", "")),
        ("unlabeled images", metadata.get("n_unlabeled", "")),
        ("seconds", metadata.get("seconds", "")),
        *s.settings.items(),
    ]
    return [(name.replace("_", " "), str(value)) for name, value in rows]


def versions(metadata: dict[str, Any]) -> str:
    packages = [f"{name} {version}" for name, version in metadata.get("packages", {}).items()]
    own = [f"stssad {metadata.get('stssad', '')}", f"Python {metadata.get('python', '')}"]
    return ", ".join([*own, *packages])


def readable(score: float) -> str:
    return f"{score:,.0f}" if abs(score) >= 1000 else f"{score:.4g}"


def data_uri(image: Tensor) -> str:
    """An image (3, h, w) inside the page itself."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg(image, LARGEST, 88)).decode()
