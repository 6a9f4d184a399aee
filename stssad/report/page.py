"""The page: what was found, in words first, then everything it rests on."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..candidate import Candidate
from ..model import STSSAD
from ..storage import replacing
from ..val_loss import shift_alignment
from ..words import in_words
from .charts import Line, histogram, line_chart, scatter
from .material import KINDS, N_TOP, Material

N_COLOURS = 6  # that the page has for starts


def write_report(folder: Path, model: STSSAD, material: Material, facts: dict[str, Any]) -> Path:
    """report.html in the folder; `facts` is the content of environment.json."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(loader=PackageLoader("stssad.report", "."), autoescape=True)
    page = environment.get_template("page.html").render(content(model, material, facts))
    with replacing(folder / "report.html") as file:
        file.write(page)
    return folder / "report.html"


def content(model: STSSAD, material: Material, facts: dict[str, Any]) -> dict[str, Any]:
    """Everything that the template fills in."""
    gallery = cards(model, material)
    return {
        "title": facts["title"],
        "finding": finding(model),
        "learned": learned_words(model),
        "family": type(model.augmentation_).__name__,
        "noun": noun(model),
        "warnings": model.warnings_,
        "unreadable": facts.get("unreadable", []),
        "normal": [data_uri(p) for p in material.normal],
        "augmented": [data_uri(p) for p in material.augmented],
        "strangest": gallery[: len(material.normal)],
        "evidence": evidence(model),
        "is_frozen": model.settings_.is_frozen,
        "trajectories": trajectories(model.candidates_, model.chosen_),
        "train_losses": losses(model.candidates_, model.chosen_, "train_loss", "L_trn"),
        "val_losses": losses(model.candidates_, model.chosen_, "val_loss", loss_name(model)),
        "starts": [start_row(c, model.chosen_) for c in model.candidates_],
        "histogram": histogram(
            [
                ("unseen normal", model.normal_scores_.tolist()),
                ("pool", model.decision_scores_.tolist()),
            ],
            model.threshold_,
            model.scorer_.floor,
        ),
        "threshold": readable(model.threshold_),
        "false_alarms": f"{100 * model.false_alarms:g} %",
        "n_held_out": len(model.held_out_index_),
        "n_normal_scores": len(model.normal_scores_),
        "map": scatter(material.map.tolist(), material.map_kind.tolist(), KINDS),
        "top": gallery[:N_TOP],
        "bottom": gallery[N_TOP:],
        "settings": settings_rows(model, facts),
        "command": facts.get("command", ""),
        "versions": versions(facts),
    }


def noun(model: STSSAD) -> str:
    return str(getattr(model.augmentation_, "noun", type(model.augmentation_).__name__))


def loss_name(model: STSSAD) -> str:
    return "1 - J" if model.val_loss_ is shift_alignment else "L_val"


def evidence(model: STSSAD) -> str:
    """Whether the pool bears out what was learned, in words; empty in the paper's way."""
    if model.evidence_ is None:
        return ""
    return model.evidence_.in_words(f"{noun(model)} ({type(model.augmentation_).__name__})")


def finding(model: STSSAD) -> str:
    """What was found, in one or two sentences."""
    n, flagged = len(model.decision_scores_), int(model.labels_.sum())
    about = model.contamination_.in_words()
    count = f"{flagged} of its {n} pictures score above the threshold"
    if model.contamination_.looks_clean:
        return f"{about[0].upper()}{about[1:]}; {count}."
    kind = f"The augmentation that fits them best is {noun(model)} of {learned_words(model)}."
    fits = model.evidence_ is None or model.evidence_.fits
    if not fits or all(c.collapsed for c in model.candidates_):
        kind = "No augmentation was found that resembles them."
    return f"{about[0].upper()}{about[1:]}; {count}. {kind}"


def learned_words(model: STSSAD) -> str:
    return in_words(model.candidates_[model.chosen_].learned)


def cards(model: STSSAD, material: Material) -> list[dict[str, Any]]:
    """The gallery's pictures, the most anomalous first."""
    shares = model.normal_share_above(model.decision_scores_)
    order = np.argsort(-model.decision_scores_, kind="stable").tolist()
    rank = {index: place + 1 for place, index in enumerate(order)}
    return [
        {
            "picture": data_uri(picture),
            "heat": data_uri(material.heat[k]) if len(material.heat) else "",
            "name": material.names[i],
            "rank": rank[i],
            "score": readable(model.decision_scores_[i]),
            "share": f"{100 * shares[i]:.1f} %",
            "flagged": bool(model.labels_[i]),
        }
        for k, (picture, i) in enumerate(zip(material.ranked, material.ranked_index, strict=True))
    ]


def trajectories(candidates: list[Candidate], chosen: int) -> list[str]:
    """A chart for each learned value, over the iterations of every start of the same family."""
    charts = []
    family = [c for c in candidates if c.family == candidates[chosen].family]
    for name in family[0].learned:
        lines = [
            Line(f"start {c.start + 1}", [r.iteration for r in c.history],
                 [r.learned[name] for r in c.history], c.start % N_COLOURS, c.start == chosen)
            for c in family
        ]  # fmt: skip
        label = name.replace("_deg", " (degrees)")
        positive = all(y > 0 for line in lines for y in line.ys)
        charts.append(line_chart(lines, label, log=positive and not name.endswith("_deg")))
    return charts


def losses(candidates: list[Candidate], chosen: int, name: str, label: str) -> str:
    """L_trn or L_val of every start; iterations of the warm start are before 0."""
    lines = []
    for c in candidates:
        before = c.warm_losses if name == "train_loss" else []
        xs = [*range(-len(before), 0), *(r.iteration for r in c.history)]
        ys = [*before, *(getattr(r, name) for r in c.history)]
        label_ = f"start {c.start + 1}, {c.family}"
        lines.append(Line(label_, xs, ys, c.start % N_COLOURS, c.start == chosen))
    return line_chart(lines, label)


def start_row(c: Candidate, chosen: int) -> dict[str, Any]:
    return {
        "number": c.start + 1,
        "colour": c.start % N_COLOURS,
        "family": c.family,
        "alignment": "" if c.alignment is None else f"{c.alignment:.2f}",
        "initial": in_words(c.initial),
        "learned": in_words(c.learned),
        "train_loss": f"{c.train_loss:.3f}",
        "val_loss": f"{c.val_loss:.3f}",
        "iterations": f"{c.best_iteration + 1} of {len(c.history)}",
        "variance": f"{c.score_variance:.3g}",
        "seconds": f"{c.seconds:.0f}",
        "chosen": c.start == chosen,
        "collapsed": c.collapsed,
    }


def settings_rows(model: STSSAD, facts: dict[str, Any]) -> list[tuple[str, str]]:
    from dataclasses import asdict

    rows: list[tuple[str, Any]] = [
        ("seed", model.seed),
        ("augmentation", ", ".join(type(f).__name__ for f in model.families_)),
        ("encoder", type(model.encoder_).__name__),
        ("normal pictures", facts.get("n_normal", "")),
        ("unlabeled pictures", facts.get("n_unlabeled", "")),
        ("seconds", facts.get("seconds", "")),
        *asdict(model.settings_).items(),
    ]
    return [(name.replace("_", " "), str(value)) for name, value in rows]


def versions(facts: dict[str, Any]) -> str:
    packages = [f"{name} {version}" for name, version in facts.get("packages", {}).items()]
    own = [f"stssad {facts.get('stssad', '')}", f"Python {facts.get('python', '')}"]
    return ", ".join([*own, *packages])


def readable(score: float) -> str:
    return f"{score:,.0f}" if abs(score) >= 1000 else f"{score:.4g}"


def data_uri(picture: Tensor) -> str:
    """A picture (3, h, w) inside the page itself."""
    from PIL import Image

    pixels = picture.permute(1, 2, 0).contiguous().numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=88)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
