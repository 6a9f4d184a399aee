"""What is a review worth? Twenty marks, in the order proposed and at random, and the refit's score
on images that nobody has seen. And: do the kinds that are found agree with the true ones?

Labels play the reviewer, and are read for the results; nothing else sees them.
"""

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from ..features import Features, NormalFeatures
from ..methods.anomaly_model import AnomalyModel
from ..methods.pretrained import taught, usual_parts
from ..methods.refit import FEWEST_DEFECTS, Index, Kept, Relearned, kept_of, relearned
from ..review.order import proposed
from ..scoring.calibration import CalibratedSum
from ..scoring.gaussian import ImageGaussian
from ..scoring.kinds import descriptors, kinds_of
from ..scoring.part import random_folds
from ..scoring.threshold import reviewed_threshold, threshold_for
from ..testbeds.task import Task
from ..version import __version__
from .cell import Cell, Line, Store
from .methods import PRETRAINED
from .robustness import MIXED, SIZE, SMALL, Category, pool_of

TESTBED = "review"  # of the result lines
N_MARKS, SHARE, RATE = 20, 0.3, 0.01
ORDERS = ("proposed", "random")


def run_review(category: str, root: Path, seeds: int, store: Store) -> Iterator[Line]:
    """A line for each seed: before, after twenty marks in either order, and the kinds."""
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
        line = reviewed(images, features, normal, cell)
        store.append([line])
        yield line


def reviewed(images: Category, features: Features, normal: NormalFeatures, cell: Cell) -> Line:
    """One pool: fitted, grouped, marked in either order, and judged."""
    task = pool_of(images, MIXED, cell.seed, SHARE)
    some = normal.among(task.train)
    fold = random_folds(len(some), cell.seed)
    scorer = CalibratedSum(copy.deepcopy(usual_parts(normal.features)))
    crossed = scorer.fit(some, fold, cell.seed)
    pool, test = features[task.pool], features[task.test]
    scored = taught(AnomalyModel(images.encoder, scorer, SIZE, SMALL), crossed, some, fold, pool)
    assert scored.of_pool is not None
    kept = kept_of(scorer, some, scored.crossed, pool)
    truth = true_kinds(images, task.pool)
    scores, limit = scored.of_pool.scores.numpy(), limit_of(scored.of_normal.scores)
    kinds = np.full(len(scores), -1)
    kinds[scores > limit] = kinds_of(described(scorer, kept, pool)[scores > limit])
    details = {
        "kinds found": float(kinds.max() + 1),
        "kinds": float(len(images.defects)),
        "rand index": rand_index(truth[kinds >= 0], kinds[kinds >= 0]),
        **judged(task, scorer, limit, test, "before"),
    }
    for order in ORDERS:
        chosen = first_marks(order, scores, limit, kinds, cell.seed)
        good = np.array([i for i in chosen if truth[i] < 0], dtype=np.int64)
        defects = np.array([i for i in chosen if truth[i] >= 0], dtype=np.int64)
        after = relearned(scorer, kept, good, defects, cell.seed)
        details |= judged(task, after.scorer, limit_after(after, good, defects), test, order)
    rounded = {name: float(f"{value:.4g}") for name, value in details.items()}
    counts = (len(task.train), len(task.pool), len(task.test))
    return Line(cell, details["auc before"], 0.0, {}, __version__, *counts, details=rounded)


def described(scorer: CalibratedSum, kept: Kept, pool: Features) -> npt.NDArray[np.float32]:
    gaussian, bank = scorer.parts[0], scorer.parts[1].bank
    assert isinstance(gaussian, ImageGaussian) and isinstance(bank, torch.Tensor)
    found: npt.NDArray[np.float32] = descriptors(
        kept.far[0].patches, bank, gaussian.density.whitening(pool.pooled)
    ).numpy()
    return found


def limit_of(normal_scores: torch.Tensor) -> float:
    return threshold_for(normal_scores.numpy(), RATE, -np.inf)


def limit_after(after: Relearned, good: Index, defects: Index) -> float:
    """The threshold that `stssad refit` would set."""
    if len(defects) < FEWEST_DEFECTS:
        return limit_of(after.normal_scores)
    pool = after.pool_scores.numpy()
    normal = after.normal_scores.numpy()
    return reviewed_threshold(normal, pool[good], pool[defects], RATE, -np.inf)


def first_marks(
    order: str, scores: npt.NDArray[np.float64], limit: float, kinds: npt.NDArray[np.int64],
    seed: int,
) -> list[int]:  # fmt: skip
    if order == "random":
        drawn: list[int] = np.random.default_rng(seed).permutation(len(scores))[:N_MARKS].tolist()
        return drawn
    return proposed(scores, limit, kinds.tolist(), [])[:N_MARKS]


def judged(
    task: Task, scorer: CalibratedSum, limit: float, test: Features, name: str
) -> dict[str, float]:
    """On unseen images: AUROC; the share of defects above all but one in a hundred normal ones; and
    what is found and wrongly flagged at the threshold."""
    scores = torch.cat([scorer(some).scores for some in test.chunks(16)]).numpy()
    flagged, found = task.shares_above(limit, scores)
    normal = np.sort(scores[task.test_labels == 0])[::-1]
    _, recall = task.shares_above(float(normal[int(RATE * len(normal))]), scores)
    return {
        f"auc {name}": task.auc(scores),
        f"recall {name}": recall,
        f"found {name}": found,
        f"flagged {name}": flagged,
    }


def true_kinds(images: Category, rows: torch.Tensor) -> npt.NDArray[np.int64]:
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
