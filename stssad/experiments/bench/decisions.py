"""Are the rates kept that are asked for? False alarms, false discoveries, and the share estimated.

For each category, number of normal images and contamination: a fit, unseen normal images, and a
pool of both kinds whose normal images were recorded with those of the fit. Beside today's threshold
stands the one of version 0.2, the conformal quantile of the cross-fitted scores.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...encoders.features import Features, NormalFeatures
from ...methods.anomaly_model import AnomalyModel
from ...methods.pretrained import Scored, folds_for, learn_from, pool_folds_for
from ...scoring.conditions import find_differences
from ...scoring.contamination import contamination
from ...scoring.decision import FALSE_DISCOVERIES
from ...scoring.false_discovery import discovery_threshold
from ...scoring.score import PretrainedScore
from ...scoring.tail import NormalTail, ScoreArray
from ...version import __version__
from .cell import Cell, Line, Store
from .methods import PRETRAINED
from .robustness import SIZE, SMALL, Category

TESTBED = "decisions"  # of the result lines
NORMAL = (30, 100, 250)
SHARES = (0.0, 0.1, 0.25, 0.5)
POOL, FEWEST_UNSEEN = 80, 30
RATES = (0.01, 0.05)
# Where training and test images were recorded together, all normal ones are alike.
ONE_RECORDING = ("kolektor", "leaf")


@dataclass(frozen=True)
class Division:
    """Rows of a category's images: of one seed and number of normal images."""

    train: Tensor
    unseen: Tensor
    pool_normal: Tensor
    defects: Tensor

    @staticmethod
    def of(category: Category, seed: int, n_normal: int) -> "Division":
        """All normal images come from one recording, the training images."""
        generator = torch.Generator().manual_seed(seed)
        good = category.rows["train"]
        good = good[torch.randperm(len(good), generator=generator)]
        defects = torch.cat([category.rows[kind] for kind in category.defects])
        defects = defects[torch.randperm(len(defects), generator=generator)]
        n = min(n_normal, len(good) - POOL - FEWEST_UNSEEN)
        return Division(good[:n].sort().values, good[n:-POOL], good[-POOL:], defects)

    def pool(self, share: float) -> tuple[Tensor, ScoreArray]:
        """Its rows, and which of them are anomalous."""
        k = round(share * POOL)
        labels = np.arange(POOL) >= POOL - k
        return torch.cat([self.pool_normal[: POOL - k], self.defects[:k]]), labels.astype(float)


def old_threshold(scores: ScoreArray, rate: float) -> float:
    """Version 0.2's."""
    from scipy.stats import t as student

    n = len(scores)
    rank = math.ceil((n + 1) * (1 - rate))
    if rank <= n:
        return float(np.sort(scores)[rank - 1])
    spread = scores.std(ddof=1) * math.sqrt(1 + 1 / n)
    return float(scores.mean() + student.ppf(1 - rate, n - 1) * spread)


def pareto_threshold(scores: ScoreArray, rate: float) -> float:
    """Of a generalised Pareto tail by probability-weighted moments (Hosking and Wallis 1987), from
    the same scores as the tail that is used; a rival of it."""
    tail = NormalTail.of(scores)
    if rate >= tail.share or tail.scale == 0:
        return tail.threshold(rate)
    excess = tail.ordered[-tail.k :] - tail.start
    ranks = (np.arange(tail.k, 0, -1) - 0.65) / tail.k
    first, second = float(excess.mean()), float((ranks * excess).mean())
    shape = float(np.clip(2 - first / (first - 2 * second), -0.5, 0.5)) or 1e-9
    scale = 2 * first * second / (first - 2 * second)
    return float(tail.start + scale / shape * ((tail.share / rate) ** shape - 1))


def measure(
    normal: ScoreArray, unseen: ScoreArray, pool: ScoreArray, anomalous: ScoreArray
) -> dict[str, float]:
    """What today's thresholds and the old one do."""
    tail, details = NormalTail.of(normal), {}
    is_anomalous = anomalous > 0
    for rate in RATES:
        limits = {
            "": tail.threshold(rate),
            "old ": old_threshold(normal, rate),
            "pareto ": pareto_threshold(normal, rate),
        }
        for name, limit in limits.items():
            details[f"{name}flagged {100 * rate:g} %"] = float((unseen > limit).mean())
            if is_anomalous.any():
                details[f"{name}found {100 * rate:g} %"] = float(
                    (pool[is_anomalous] > limit).mean()
                )
    flagged = pool > discovery_threshold(pool, tail, FALSE_DISCOVERIES)
    details["false discoveries"] = float(flagged[~is_anomalous].sum() / max(1, flagged.sum()))
    if (~is_anomalous).any():
        details["flagged"] = float(flagged[~is_anomalous].mean())
    if is_anomalous.any():
        details["found"] = float(flagged[is_anomalous].mean())
    return details


def run_decisions(category: str, root: Path, seeds: int, store: Store) -> Iterator[Line]:
    """A line for each number of normal images, contamination and seed that isn't there yet."""
    done = {line.cell.key for line in store.lines(TESTBED)}
    wanted = [(seed, n) for seed in range(seeds) for n in NORMAL]
    todo = [x for x in wanted if any(cell_of(category, *x, c).key not in done for c in SHARES)]
    if not todo:
        return
    images = Category.read(root, category)
    if category in ONE_RECORDING:
        good = torch.cat([images.rows["train"], images.rows["good"]])
        images = replace(images, rows={**images.rows, "train": good, "good": good[:0]})
    features = images.features("")
    normal = images.normal(features)
    for seed, n_normal in todo:
        for line in judge(images, features, normal, seed, n_normal):
            if line.cell.key not in done:
                store.append([line])
                yield line


def cell_of(category: str, seed: int, n_normal: int, share: float) -> Cell:
    task = f"{category}/{n_normal} normal"
    return Cell(TESTBED, task, PRETRAINED, seed, "inductive", "imagenet", share, {})


def judge(
    category: Category, features: Features, normal: NormalFeatures, seed: int, n_normal: int
) -> Iterator[Line]:
    """One fit, and pools of every contamination."""
    division = Division.of(category, seed, n_normal)
    train = normal.among(division.train)
    fold = folds_for(category.images[division.train], seed)
    fitted = PretrainedScore.for_features(normal.features)
    crossed = fitted.fit(train, fold, seed)
    for share in SHARES:
        scorer = copy.deepcopy(fitted)
        model = AnomalyModel(category.encoder, scorer, SIZE, SMALL)
        scored = Scored(model, fold, scorer.calibrate(crossed), crossed)
        rows, anomalous = division.pool(share)
        pool_fold = pool_folds_for(category.images[rows], seed, fold)
        differs = bool(find_differences(category.images[division.train], category.images[rows]))
        taught = learn_from(features[rows], pool_fold, train, scored, differs)
        unseen = model.score_features(features[division.unseen]).scores.numpy()
        of_normal, of_pool = taught.of_normal.scores.numpy(), taught.of_pool.scores.numpy()
        details = measure(of_normal, unseen, of_pool, anomalous)
        true = float(anomalous.mean())
        estimate = contamination(taught.untaught_pool.numpy(), scored.of_normal.scores.numpy())
        details |= {
            "taught": taught.trial.weight,
            "contamination": estimate.estimate,
            "contamination low": estimate.low,
            "contamination high": estimate.high,
            "covered": float(estimate.low <= true <= estimate.high),
            "claimed": float(not estimate.looks_clean),
        }
        auc = area(unseen, of_pool[anomalous > 0])
        counts = (len(division.train), POOL, len(unseen))
        rounded = {name: float(f"{value:.4g}") for name, value in details.items()}
        cell = cell_of(category.name, seed, n_normal, share)
        yield Line(cell, auc, 0.0, {}, __version__, *counts, details=rounded)


def area(normal: ScoreArray, anomalous: ScoreArray) -> float:
    """AUROC; a half where there are no anomalies."""
    if not len(anomalous):
        return 0.5
    wins = (anomalous[:, None] > normal).mean() + 0.5 * (anomalous[:, None] == normal).mean()
    return float(wins)


HEAD = ["fits", "flagged at 1 % (0.2, Pareto)", "flagged at 5 % (0.2, Pareto)"]
HEAD += ["false discoveries", "found", "found at 1 % (0.2)", "share covered", "share claimed"]


def format_decisions(lines: list[Line]) -> str:
    """By number of normal images and contamination, over all categories and seeds."""
    rows = [["normal images", "contamination", *HEAD]]
    for n_normal in NORMAL:
        for share in SHARES:
            rows.append(
                [
                    str(n_normal),
                    f"{100 * share:g} %",
                    *summarise_cell([x.details for x in lines if is_of(x, n_normal, share)]),
                ]
            )
    return format_rows(rows)


def format_categories(lines: list[Line]) -> str:
    """By category, over all contaminations and seeds, at the larger numbers of normal images."""
    rows = [["category", *HEAD]]
    for category in sorted({line.cell.task.partition("/")[0] for line in lines}):
        mine = [x for x in lines if x.cell.task.startswith(f"{category}/")]
        chosen = [x.details for x in mine if not is_of(x, NORMAL[0])]
        rows.append([category, *summarise_cell(chosen)])
    return format_rows(rows)


def is_of(line: Line, n_normal: int, share: float | None = None) -> bool:
    same = line.cell.task.endswith(f"/{n_normal} normal")
    return same and share in (None, line.cell.contamination)


def format_rows(rows: list[list[str]]) -> str:
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def summarise_cell(details: list[dict[str, float]]) -> list[str]:
    def mean(name: str, digits: int = 1) -> str:
        values = [d[name] for d in details if name in d]
        return f"{100 * float(np.mean(values)):.{digits}f} %" if values else "–"

    def rivals(name: str, digits: int) -> str:
        old, pareto = (mean(f"{other} {name}", digits) for other in ("old", "pareto"))
        return f"{mean(name, digits)} ({old}, {pareto})"

    return [
        str(len(details)),
        rivals("flagged 1 %", 2),
        rivals("flagged 5 %", 1),
        mean("false discoveries"),
        mean("found", 0),
        f"{mean('found 1 %', 0)} ({mean('old found 1 %', 0)})",
        mean("covered", 0),
        mean("claimed", 0),
    ]
