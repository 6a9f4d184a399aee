"""The page of a run: what was found, in words first, then everything it rests on.

It reads what the run has saved, and nothing else.
"""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..run import ADVICE, Run
from ..storage import intact, replacing
from ..summary import Summary
from .charts import Line, histogram, line_chart, scatter
from .material import KINDS, N_TOP, Material
from .presentation import PRESENTATIONS, Presentation, finding, learned_words

N_COLOURS = 6  # that the page has for restarts


def write_report(run: Run) -> Path:
    """report.html in the run's folder."""
    from jinja2 import Environment, PackageLoader

    summary, material = run.summary(), Material.load(run.folder)
    environment = Environment(loader=PackageLoader("stssad.report", "."), autoescape=True)
    with intact(run.folder, ADVICE):
        told = content(summary, material, run.metadata)
        filled = environment.get_template("page.html").render(told)
    with replacing(run.report, "backslashreplace") as file:  # names that aren't UTF-8
        file.write(filled)
    return run.report


def content(s: Summary, material: Material, metadata: dict[str, Any]) -> dict[str, Any]:
    """Everything that the template fills in."""
    told = PRESENTATIONS[s.method]
    gallery = cards(s, material)
    return {
        "title": metadata["title"],
        "finding": finding(s),
        "learned": learned_words(s),
        "type": s.candidates[s.chosen].augmentation if s.chosen is not None else "",
        "noun": s.noun,
        "warnings": s.warnings,
        "unreadable": metadata.get("unreadable", []),
        "normal": [data_uri(x) for x in material.normal],
        "augmented": [data_uri(x) for x in material.augmented],
        "highest": gallery[: len(material.normal)],
        "evidence": told.evidence(s),
        "scores": told.scores(s),
        "tuning": told.tuning,
        "restarts": [restart(c, s.chosen, told) for c in s.candidates],
        "columns": list(told.row(s.candidates[0])) if s.candidates else [],
        "trajectories": trajectories(s),
        "curves": [(curve(s, told, name), told.captions[name]) for name in told.curves],
        "histogram": histogram(
            [("unseen normal", s.normal_scores.tolist()), ("pool", s.pool_scores.tolist())],
            s.threshold,
            s.floor,
        ),
        "threshold": readable(s.threshold),
        "false_alarms": f"{100 * s.false_alarms:g} %",
        "plane": scatter(material.plane.tolist(), material.plane_kind.tolist(), KINDS),
        "top": gallery[:N_TOP],
        "bottom": gallery[N_TOP:],
        "settings": settings_rows(s, metadata),
        "command": metadata.get("command", ""),
        "versions": versions(metadata),
    }


def cards(s: Summary, material: Material) -> list[dict[str, Any]]:
    """The gallery's images, the most anomalous first."""
    p_values, flagged = s.p_values, s.flagged
    order = np.argsort(-s.pool_scores, kind="stable").tolist()
    rank = {index: k + 1 for k, index in enumerate(order)}
    return [
        {
            "image": data_uri(image),
            "heatmap": data_uri(material.heatmaps[k]) if len(material.heatmaps) else "",
            "name": material.names[i],
            "rank": rank[i],
            "score": readable(s.pool_scores[i]),
            "p_value": f"{p_values[i]:.3g}",
            "flagged": bool(flagged[i]),
        }
        for k, (image, i) in enumerate(zip(material.ranked, material.ranked_index, strict=True))
    ]


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
    from PIL import Image

    pixels = image.permute(1, 2, 0).contiguous().numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=88)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
