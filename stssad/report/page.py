"""The page of a run: the result in words, the gallery, then how it came about.

It reads only what the run has saved.
"""

import base64
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..runs.folder import ADVICE
from ..runs.run import Run
from ..runs.summary import Summary
from ..storage.files import intact, json_text, replacing
from .charts import Line, draw_lines, draw_scatter
from .group_names import read_group_names
from .material import SOURCES, Material, encode_jpeg
from .presentation import (
    DESCRIPTIONS,
    Description,
    format_finding,
    format_headline,
    format_parameters,
)

MOST_SHOWN = 3000  # images of a pool; the least anomalous beyond are only counted
LARGEST = 512  # pixels of an example
FULL_RANGE = 65535  # white in files of 16 bits, as browsers show them
N_COLOURS = 6  # of restarts, on the page


def write_report(run: Run) -> Path:
    """report.html in the run's folder."""
    from jinja2 import Environment, PackageLoader

    summary, material = run.summary(), Material.load(run.folder)
    environment = Environment(loader=PackageLoader("stssad.report", "."), autoescape=True)
    with intact(run.folder, ADVICE):
        content = fill_page(summary, material, run.metadata, read_group_names(run.folder))
        page = environment.get_template("page.html").render(content)
    with replacing(run.report, "backslashreplace") as file:  # names that aren't UTF-8
        file.write(page)
    return run.report


def fill_page(
    s: Summary, material: Material, metadata: dict[str, Any], names: dict[int, str]
) -> dict[str, Any]:
    """The values of the template."""
    description = DESCRIPTIONS[s.method]
    highest = np.argsort(-s.pool_scores, kind="stable")[: len(material.normal)].tolist()
    data = build_gallery(s, material, lambda i: embed_image(s, material, i), names)
    return {
        "title": metadata["title"],
        "headline": format_headline(s),
        "finding": format_finding(s),
        "learned": format_parameters(s),
        "type": s.candidates[s.chosen].augmentation if s.chosen is not None else "",
        "noun": s.noun,
        "warnings": s.warnings,
        "unreadable": metadata.get("unreadable", []),
        "normal": [to_data_uri(x) for x in material.normal],
        "augmented": [to_data_uri(x) for x in material.augmented],
        "highest": [embed_image(s, material, i)[0] for i in highest],
        "data": to_script(data),
        "evidence": description.format_evidence(s),
        "scores": description.format_scores(s),
        "tuning": description.tuning,
        "restarts": [describe_restart(c, s.chosen, description) for c in s.candidates],
        "columns": list(description.format_row(s.candidates[0])) if s.candidates else [],
        "trajectories": draw_trajectories(s),
        "curves": [
            (draw_curve(s, description, name), description.captions[name])
            for name in description.curves
        ],
        "threshold": format_score(s.threshold),
        "false_alarms": f"{100 * s.false_alarms:g} %",
        "plane": draw_scatter(material.plane.tolist(), material.plane_source.tolist(), SOURCES),
        "settings": list_settings(s, metadata),
        "command": metadata.get("command", ""),
        "versions": list_versions(metadata),
    }


def build_gallery(
    s: Summary,
    material: Material,
    address: Callable[[int], tuple[str, str]],
    names: dict[int, str],
) -> dict[str, Any]:
    """All that the gallery's script needs; `address` gives an image's small and large form,
    `names` those of the groups."""
    p_values = s.p_values.tolist()
    items = []
    order = np.argsort(-s.pool_scores, kind="stable")
    drawn = set(order[:MOST_SHOWN].tolist())
    for i, (name, score) in enumerate(zip(material.names, s.pool_scores.tolist(), strict=True)):
        image, full = address(i) if i in drawn else ("", "")
        items.append(
            {
                "i": i,
                "name": name,
                "score": score,
                "p": round(p_values[i], 6),
                "group": int(material.groups[i]),
                "image": image,
                "full": full,
                "map": material.map_text(i) if i in drawn else "",
            }
        )
    return {
        "items": items,
        "normal": sorted(round(x, 5) for x in s.normal_scores.tolist()),
        "threshold": s.threshold,
        "border": s.border,
        "floor": s.floor if math.isfinite(s.floor) else None,
        "aspect": s.settings["aspect"],
        "mapSide": material.maps.shape[-1],
        "groupNames": {str(group): name for group, name in names.items()},
    }


def embed_image(s: Summary, material: Material, i: int) -> tuple[str, str]:
    """Small inside the page itself; large from the file, where a browser can show it."""
    small = "data:image/jpeg;base64," + base64.b64encode(material.thumbnail(i)).decode()
    path = material.files[i]
    # A browser takes 65535 for white in files of 16 bits: those of a 12-bit camera would be black.
    can_be_shown = path and s.settings["white_level"] in (None, FULL_RANGE)
    return small, Path(path).as_uri() if can_be_shown else ""


def to_script(data: dict[str, Any]) -> str:
    """JSON that can't end the script element it stands in."""
    return json_text(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def describe_restart(c: Any, chosen: int | None, description: Description) -> dict[str, Any]:
    """A row of the table of restarts."""
    cells = description.format_row(c)
    is_chosen = c.number == chosen
    last = "chosen" if is_chosen else cells.pop("")
    return {
        "number": c.number + 1,
        "colour": c.number % N_COLOURS,
        "cells": [*(value for name, value in cells.items() if name), last],
        "chosen": is_chosen,
    }


def draw_trajectories(s: Summary) -> list[str]:
    """A chart for each learned value, over the iterations of every restart of the chosen type."""
    if s.chosen is None:
        return []
    charts = []
    alike = [c for c in s.candidates if c.augmentation == s.candidates[s.chosen].augmentation]
    for name in (each for each in alike[0].learned if each != "size"):  # the same as the area
        lines = [
            Line(
                f"restart {c.number + 1}",
                [r.iteration for r in c.history],
                [r.learned[name] for r in c.history],
                c.number % N_COLOURS,
                c.number == s.chosen,
            )
            for c in alike
        ]
        label = name.replace("_deg", " (degrees)")
        positive = all(y > 0 for line in lines for y in line.ys)
        charts.append(draw_lines(lines, label, log=positive and not name.endswith("_deg")))
    return charts


def draw_curve(s: Summary, description: Description, name: str) -> str:
    lines = [
        Line(
            f"restart {c.number + 1}, {c.augmentation}",
            *description.curves[name](c),
            c.number % N_COLOURS,
            c.number == s.chosen,
        )
        for c in s.candidates
    ]
    return draw_lines(lines, name)


def list_settings(s: Summary, metadata: dict[str, Any]) -> list[tuple[str, str]]:
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


def list_versions(metadata: dict[str, Any]) -> str:
    packages = [f"{name} {version}" for name, version in metadata.get("packages", {}).items()]
    own = [f"stssad {metadata.get('stssad', '')}", f"Python {metadata.get('python', '')}"]
    return ", ".join([*own, *packages])


def format_score(score: float) -> str:
    return f"{score:,.0f}" if abs(score) >= 1000 else f"{score:.4g}"


def to_data_uri(image: Tensor) -> str:
    """An image (3, h, w) inside the page itself."""
    return "data:image/jpeg;base64," + base64.b64encode(encode_jpeg(image, LARGEST, 88)).decode()
