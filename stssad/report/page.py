"""The page of a run: the result in words, the gallery, then how it came about.

It reads only what the run has saved.
"""

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..images.inspection import Remark
from ..review.labels import Labels
from ..runs.folder import ADVICE
from ..runs.run import Run
from ..runs.summary import Summary
from ..scoring.decision import PRICED, SENSITIVITIES
from ..storage.files import intact, json_text, replacing
from .charts import Line, draw_lines, draw_scatter
from .group_names import read_group_names
from .material import SOURCES, Material, encode_jpeg
from .presentation import (
    DESCRIPTIONS,
    Description,
    format_decision,
    format_finding,
    format_headline,
    format_parameters,
)

MOST_SHOWN = 3000  # images of a pool; the least anomalous beyond are only counted
LARGEST = 512  # pixels of an example
FULL_RANGE = 65535  # white in files of 16 bits, as browsers show them
N_COLOURS = 6  # of restarts, on the page


@dataclass(frozen=True)
class Notes:
    """What people have said: names of groups, and labels of the pool's images by their number."""

    groups: dict[int, str]
    labels: dict[int, str]


def read_notes(run: Run) -> Notes:
    groups = read_group_names(run.folder)
    if not run.files.labels.is_file():
        return Notes(groups, {})
    labels = Labels(run.folder).all()
    names = [row.image_path for row in run.predictions()]
    return Notes(groups, {i: labels[x].label for i, x in enumerate(names) if x in labels})


def write_report(run: Run) -> Path:
    """report.html in the run's folder."""
    from jinja2 import Environment, PackageLoader

    summary, material = run.summary(), Material.load(run.folder)
    environment = Environment(loader=PackageLoader("stssad.report", "."), autoescape=True)
    with intact(run.folder, ADVICE):
        content = fill_page(summary, material, run.metadata, read_notes(run))
        page = environment.get_template("page.html").render(content)
    with replacing(run.report, "backslashreplace") as file:  # names that aren't UTF-8
        file.write(page)
    return run.report


def fill_page(
    s: Summary, material: Material, metadata: dict[str, Any], notes: Notes
) -> dict[str, Any]:
    """The values of the template."""
    description = DESCRIPTIONS[s.method]
    highest = np.argsort(-s.pool_scores, kind="stable")[: len(material.normal)].tolist()
    data = build_gallery(s, material, lambda i: embed_image(s, material, i), notes)
    return {
        "title": metadata["title"],
        "headline": format_headline(s),
        "finding": format_finding(s),
        "learned": format_parameters(s),
        "type": s.candidates[s.chosen].augmentation if s.chosen is not None else "",
        "noun": s.noun,
        "warnings": s.warnings,
        "unreadable": metadata.get("unreadable", []),
        "remarks": [str(remark) for remark in list_remarks(metadata)],
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
        "decision": format_decision(s),
        "plane": draw_scatter(material.plane.tolist(), material.plane_source.tolist(), SOURCES),
        "settings": list_settings(s, metadata),
        "command": metadata.get("command", ""),
        "versions": list_versions(metadata),
    }


def list_items(
    s: Summary, material: Material, address: Callable[[int], tuple[str, str]], notes: Notes
) -> list[dict[str, Any]]:
    """What the gallery shows of each image of the pool; the highest-scoring ones have pixels."""
    p_values, q_values = s.p_values.tolist(), s.q_values.tolist()
    drawn = set(np.argsort(-s.pool_scores, kind="stable")[:MOST_SHOWN].tolist())
    items = []
    for i, (name, score) in enumerate(zip(material.names, s.pool_scores.tolist(), strict=True)):
        image, full = address(i) if i in drawn else ("", "")
        items.append(
            {
                "i": i,
                "name": name,
                "score": score,
                "p": round(p_values[i], 6),
                "q": round(q_values[i], 4),
                "group": int(material.groups[i]),
                "label": notes.labels.get(i, ""),
                "image": image,
                "full": full,
                "map": material.map_text(i) if i in drawn else "",
            }
        )
    return items


def build_gallery(
    s: Summary,
    material: Material,
    address: Callable[[int], tuple[str, str]],
    notes: Notes,
) -> dict[str, Any]:
    """All that the gallery's script needs; `address` gives an image's small and large form."""
    return {
        "items": list_items(s, material, address, notes),
        "normal": sorted(round(x, 5) for x in s.normal_scores.tolist()),
        "threshold": s.pool_threshold,
        "fitted": s.pool_threshold_of(s.requested),
        "tail": {"start": s.tail.start, "scale": s.tail.scale, "k": s.tail.k},
        "sensitivities": {
            name: s.pool_threshold_of(decision) for name, decision in SENSITIVITIES.items()
        },
        "prices": [[rate, s.tail.threshold(rate)] for rate in PRICED],
        "border": s.border,
        "floor": s.floor if math.isfinite(s.floor) else None,
        "aspect": s.settings["aspect"],
        "mapSide": material.maps.shape[-1],
        "groupNames": {str(group): name for group, name in notes.groups.items()},
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


def list_remarks(metadata: dict[str, Any]) -> list[Remark]:
    """What was odd about the files; that some couldn't be read is said already."""
    remarks = [Remark.parse(content) for content in metadata.get("remarks", [])]
    return [remark for remark in remarks if remark.code not in ("unreadable", "few")]


def list_versions(metadata: dict[str, Any]) -> str:
    packages = [f"{name} {version}" for name, version in metadata.get("packages", {}).items()]
    own = [f"stssad {metadata.get('stssad', '')}", f"Python {metadata.get('python', '')}"]
    return ", ".join([*own, *packages])


def to_data_uri(image: Tensor) -> str:
    """An image (3, h, w) inside the page itself."""
    return "data:image/jpeg;base64," + base64.b64encode(encode_jpeg(image, LARGEST, 88)).decode()
