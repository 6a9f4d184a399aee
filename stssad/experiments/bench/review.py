"""What is a review worth? Twenty labels, in the order proposed and at random, and the refit's score
on images that nobody has seen. And: do the groups of flagged images agree with the true kinds?

Labels play the reviewer, and are read for the results; nothing else sees them.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from ...encoders.features import Features, NormalFeatures
from ...methods.anomaly_model import AnomalyModel
from ...methods.pretrained import Scored, learn_from, pool_folds_for
from ...methods.problem import Workings
from ...methods.refit import (
    FEWEST_DEFECTS,
    Index,
    RefitData,
    Relearned,
    collect_refit_data,
    relearn,
)
from ...review.order import propose_order
from ...scoring.conditions import find_differences
from ...scoring.decision import FALSE_ALARMS, FALSE_DISCOVERIES
from ...scoring.false_discovery import discovery_threshold
from ...scoring.folds import random_folds
from ...scoring.groups import build_descriptors, group_anomalies
from ...scoring.score import PretrainedScore
from ...scoring.tail import NormalTail
from ...scoring.threshold import reviewed_threshold
from ...version import __version__
from ..testbeds.task import Task
from .cell import Cell, Line, Store
from .methods import PRETRAINED
from .robustness import MIXED, SIZE, SMALL, Category, pool_of

TESTBED = "review"  # of the result lines
N_LABELS, SHARE, RATE = 20, 0.3, 0.01
ORDERS = ("proposed", "random")


def run_review(category: str, root: Path, seeds: int, store: Store) -> Iterator[Line]:
    """A line for each seed: before, after twenty labels in either order, and the groups."""
    done = {line.cell.key for line in store.lines(TESTBED)}
    cells = [
        Cell(TESTBED, f"{category}/{MIXED}", PRETRAINED, seed, "inductive", "imagenet", SHARE)
        for seed in range(seeds)
    ]
    todo = [cell for cell in cells if cell.key not in done]
    if not todo:
        return
    images = Category.read(root, category)
    features = images.features("")
    normal = images.normal(features)
    for cell in todo:
        line = review_pool(images, features, normal, cell)
        store.append([line])
        yield line


def review_pool(images: Category, features: Features, normal: NormalFeatures, cell: Cell) -> Line:
    """One pool: fitted, grouped, labeled in either order, and judged."""
    task = pool_of(images, MIXED, cell.seed, SHARE)
    train = normal.among(task.train)
    fold = random_folds(len(train), cell.seed)
    scorer = PretrainedScore.for_features(normal.features)
    crossed = scorer.fit(train, fold, cell.seed)
    pool, test = features[task.pool], features[task.test]
    model = AnomalyModel(images.encoder, scorer, SIZE, SMALL)
    pool_fold = pool_folds_for(images.images[task.pool], cell.seed, fold)
    differs = bool(find_differences(images.images[task.train], images.images[task.pool]))
    scored = Scored(model, fold, scorer.calibrate(crossed), crossed)
    taught = learn_from(pool, pool_fold, train, scored, differs)
    workings = Workings(train, pool, pool_fold=pool_fold, crossed=taught.crossed)
    data = collect_refit_data(scorer, workings)
    truth = number_kinds(images, task.pool)
    scores = taught.of_pool.scores.numpy()
    limit = find_limit(scores, taught.of_normal.scores)
    groups = np.full(len(scores), -1)
    descriptors = describe_pool(scorer, data, pool)
    groups[scores > limit] = group_anomalies(descriptors[scores > limit])
    details = {
        "kinds found": float(groups.max() + 1),
        "kinds": float(len(images.defects)),
        "rand index": rand_index(truth[groups >= 0], groups[groups >= 0]),
        **judge(task, scorer, limit, test, "before"),
    }
    for order in ORDERS:
        chosen = choose_labeled(order, scores, limit, groups, cell.seed)
        good = np.array([i for i in chosen if truth[i] < 0], dtype=np.int64)
        defects = np.array([i for i in chosen if truth[i] >= 0], dtype=np.int64)
        after = relearn(scorer, data, good, defects, cell.seed, taught.trial)
        details |= judge(task, after.scorer, find_limit_after(after, good, defects), test, order)
    rounded = {name: float(f"{value:.4g}") for name, value in details.items()}
    counts = (len(task.train), len(task.pool), len(task.test))
    return Line(cell, details["auc before"], 0.0, {}, __version__, *counts, details=rounded)


def describe_pool(
    scorer: PretrainedScore, data: RefitData, pool: Features
) -> npt.NDArray[np.float32]:
    assert scorer.bank is not None
    whitened = scorer.gaussian.density.whitening(pool.pooled)
    descriptors = build_descriptors(data.far[0].patches, scorer.bank.bank, whitened)
    rows: npt.NDArray[np.float32] = descriptors.numpy()
    return rows


def find_limit(scores: npt.NDArray[np.float64], normal_scores: torch.Tensor) -> float:
    """The pool's threshold in a fit that nobody has reviewed."""
    return discovery_threshold(scores, NormalTail.of(normal_scores.numpy()), FALSE_DISCOVERIES)


def find_limit_after(after: Relearned, good: Index, defects: Index) -> float:
    """The threshold that `stssad refit` would set."""
    pool = after.pool_scores.numpy()
    limit = find_limit(pool, after.normal_scores)
    if len(defects) < FEWEST_DEFECTS:
        return limit
    normal = NormalTail.of(after.normal_scores.numpy())
    return reviewed_threshold(normal, pool[good], pool[defects], FALSE_ALARMS, limit)


def choose_labeled(
    order: str,
    scores: npt.NDArray[np.float64],
    limit: float,
    groups: npt.NDArray[np.int64],
    seed: int,
) -> list[int]:
    if order == "random":
        drawn: list[int] = np.random.default_rng(seed).permutation(len(scores))[:N_LABELS].tolist()
        return drawn
    return propose_order(scores, limit, groups.tolist(), [])[:N_LABELS]


def judge(
    task: Task, scorer: PretrainedScore, limit: float, test: Features, name: str
) -> dict[str, float]:
    """On unseen images: AUROC; the share of defects above all but one in a hundred normal ones; and
    what is found and wrongly flagged at the threshold."""
    scores = torch.cat([scorer(chunk).scores for chunk in test.chunks(16)]).numpy()
    flagged, detected = task.shares_above(limit, scores)
    normal = np.sort(scores[task.test_labels == 0])[::-1]
    _, recall = task.shares_above(float(normal[int(RATE * len(normal))]), scores)
    return {
        f"auc {name}": task.auc(scores),
        f"recall {name}": recall,
        f"found {name}": detected,
        f"flagged {name}": flagged,
    }


def number_kinds(images: Category, rows: torch.Tensor) -> npt.NDArray[np.int64]:
    """Of each of these images the number of its defect; -1: none."""
    found = np.full(len(rows), -1, dtype=np.int64)
    for k, kind in enumerate(images.defects):
        found[torch.isin(rows, images.rows[kind]).numpy()] = k
    return found


def rand_index(truth: npt.NDArray[np.int64], found: npt.NDArray[np.int64]) -> float:
    """Adjusted, over the flagged images that are defects: 1 is perfect, 0 is chance."""
    from sklearn.metrics import adjusted_rand_score

    anomalous = truth >= 0
    return float(adjusted_rand_score(truth[anomalous], found[anomalous]))
