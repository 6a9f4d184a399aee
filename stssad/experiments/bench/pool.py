"""What does the pool teach the default, by its size and contamination and by the number of normal
images? Untuned, each candidate at its smallest weight, and what the fit has chosen.

All normal images of a category are shuffled together, so that the pool's are like those fitted to.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...encoders.features import Features, NormalFeatures
from ...methods.anomaly_model import AnomalyModel
from ...methods.pretrained import Scored, Taught, folds_for, learn_from, pool_folds_for
from ...scoring.conditions import find_differences
from ...scoring.pool_auc import Sides
from ...scoring.pool_part import CANDIDATES, WEIGHTS, PoolEmbeddings, PoolPart
from ...scoring.score import PretrainedScore
from ...scoring.tail import NormalTail, ScoreArray
from ...version import __version__
from .cell import Cell, Line, Store
from .decisions import area
from .methods import PRETRAINED, RATES
from .robustness import SIZE, SMALL, Category

TESTBED = "pool"  # of the result lines
SHARES = (0.0, 0.1, 0.3, 0.5)
TESTED = 1 / 3  # of the defects, and of the normal images beside those fitted to, at least
MOST_TESTED = 150  # of either


@dataclass(frozen=True)
class Division:
    """Rows of a category's images: of one seed, number of normal images and size of the pool."""

    train: Tensor
    normal: Tensor  # the others, in the order in which pools take them
    defects: Tensor

    @staticmethod
    def of(category: Category, seed: int, n_normal: int) -> "Division":
        generator = torch.Generator().manual_seed(seed)
        good = category.rows["train"]
        good = good[torch.randperm(len(good), generator=generator)]
        defects = torch.cat([category.rows[kind] for kind in category.defects])
        defects = defects[torch.randperm(len(defects), generator=generator)]
        n = min(n_normal, len(good) // 2)
        return Division(good[:n].sort().values, good[n:], defects)

    def pool(self, n_pool: int, share: float) -> tuple[Tensor, Tensor, Tensor, ScoreArray]:
        """Pool, normal and anomalous test images, and which of the pool are anomalous; smaller
        where the test would lack images, of the same contamination."""
        most_normal = len(self.normal) - round(TESTED * len(self.normal))
        most_defects = len(self.defects) - round(TESTED * len(self.defects))
        n = min(n_pool, int(most_normal / (1 - share)))
        n = min(n, int(most_defects / share)) if share else n
        k = round(share * n)
        pool = torch.cat([self.normal[: n - k], self.defects[:k]])
        tested = self.normal[n - k :][:MOST_TESTED], self.defects[k:][:MOST_TESTED]
        return pool, *tested, (np.arange(n) >= n - k).astype(float)


def run_pools(
    category: str, root: Path, seeds: int, sizes: Sequence[tuple[int, int]], store: Store
) -> Iterator[Line]:
    """A line for each number of normal images and size of the pool, contamination and seed that
    isn't there yet."""
    done = {line.cell.key for line in store.lines(TESTBED)}
    wanted = [(seed, *size) for seed in range(seeds) for size in sizes]
    todo = [x for x in wanted if any(cell_of(category, *x, c).key not in done for c in SHARES)]
    if not todo:
        return
    images = Category.read(root, category)
    good = torch.cat([images.rows["train"], images.rows["good"]])
    images = replace(images, rows={**images.rows, "train": good, "good": good[:0]})
    features = images.features("")
    normal = images.normal(features)
    for seed, n_normal, n_pool in todo:
        for line in judge(images, features, normal, (seed, n_normal, n_pool)):
            if line.cell.key not in done:
                store.append([line])
                yield line


def cell_of(category: str, seed: int, n_normal: int, n_pool: int, share: float) -> Cell:
    task = f"{category}/{n_normal} normal, pool of {n_pool}"
    return Cell(TESTBED, task, PRETRAINED, seed, "inductive", "imagenet", share, {})


def judge(
    category: Category, features: Features, normal: NormalFeatures, asked: tuple[int, int, int]
) -> Iterator[Line]:
    """One fit to normal images, and pools of every contamination."""
    seed, n_normal, n_pool = asked
    division = Division.of(category, seed, n_normal)
    train = normal.among(division.train)
    fold = folds_for(category.images[division.train], seed)
    fitted = PretrainedScore.for_features(normal.features)
    crossed = fitted.fit(train, fold, seed)
    for share in SHARES:
        rows, good, defects, anomalous = division.pool(n_pool, share)
        pool_fold = pool_folds_for(category.images[rows], seed, fold)
        differs = bool(find_differences(category.images[division.train], category.images[rows]))
        scorer = copy.deepcopy(fitted)
        model = AnomalyModel(category.encoder, scorer, SIZE, SMALL)
        scored = Scored(model, fold, scorer.calibrate(crossed), crossed)
        taught = learn_from(features[rows], pool_fold, train, scored, differs)
        test = features[torch.cat([good, defects])]
        embeddings = taught.untaught.gaussian.pool_embeddings(
            train, fold, features[rows].pooled, pool_fold
        )
        untaught = AnomalyModel(category.encoder, taught.untaught, SIZE, SMALL)
        before, after = (m.score_features(test).scores for m in (untaught, model))
        sides = Sides(scored.of_normal.scores.numpy(), taught.untaught_pool.numpy())
        n, of_normal = len(good), taught.of_normal.scores.numpy()
        details = {
            "auc untuned": auc_of(before, n),
            **describe_pool(taught, anomalous == 0),
            **found_by(sides.normal, before.numpy(), n, " untuned"),
            **found_by(of_normal, after.numpy(), n, ""),
        }
        for name, scores in by_candidate(embeddings, sides, before, test).items():
            details[f"auc by {name}"] = auc_of(scores, n)
        rounded = {name: float(f"{value:.4g}") for name, value in details.items()}
        counts = (len(division.train), len(rows), len(test))
        cell = cell_of(category.name, *asked, share)
        yield Line(cell, auc_of(after, n), 0.0, {}, __version__, *counts, details=rounded)


def describe_pool(taught: Taught, normal: npt.NDArray[np.bool_]) -> dict[str, float]:
    """How well the pool itself is ranked, and what it has taught."""
    return {
        "pool auc untuned": auc_of(taught.untaught_pool, normal),
        "pool auc": auc_of(taught.of_pool.scores, normal),
        "taught": taught.trial.weight,
        "p of what is taught": taught.trial.gain.p_value,
        "body": taught.trial.body,
    }


def by_candidate(
    embeddings: PoolEmbeddings, sides: Sides, before: Tensor, test: Features
) -> dict[str, Tensor]:
    """Scores of test images with each candidate, at its smallest weight."""
    w, scores = embeddings.whitening(test.pooled), {}
    for name, weigh in CANDIDATES.items():
        direction, along = embeddings.learn(weigh(sides))
        scores[name] = PoolPart.of(direction, WEIGHTS[0], along, sides)(before, w)
    return scores


def auc_of(scores: Tensor, normal: int | npt.NDArray[np.bool_]) -> float:
    """`normal`: which images are, or how many of the first."""
    rows = scores.numpy()
    is_normal = np.arange(len(rows)) < normal if isinstance(normal, int) else normal
    return area(rows[is_normal], rows[~is_normal])


def found_by(normal: ScoreArray, scores: ScoreArray, n: int, title: str) -> dict[str, float]:
    """The first n scores are of normal images."""
    details = {}
    for rate in RATES:
        above = scores > NormalTail.of(normal).threshold(rate)
        details[f"flagged {100 * rate:g} %{title}"] = float(above[:n].mean())
        details[f"found {100 * rate:g} %{title}"] = float(above[n:].mean())
    return details


def format_pools(lines: Sequence[Line]) -> str:
    """By size and contamination, a category a row, with the mean over all."""
    head = ["normal", "pool", "contamination", "category", "untuned", *CANDIDATES, "chosen"]
    head += ["pool: untuned", "chosen", "found at 1 %", "flagged", "taught", "median p", "seeds"]
    rows = [head, ["---"] * len(head)]
    settings = {(*sizes_of(line), line.cell.contamination or 0.0) for line in lines}
    for n_normal, n_pool, share in sorted(settings):
        mine = [
            x for x in lines if (*sizes_of(x), x.cell.contamination) == (n_normal, n_pool, share)
        ]
        categories = sorted({x.cell.task.partition("/")[0] for x in mine})
        groups = {c: [x for x in mine if x.cell.task.startswith(f"{c}/")] for c in categories}
        first = [str(n_normal), str(n_pool), f"{100 * share:g} %"]
        rows += [[*first, name, *summarise(group)] for name, group in groups.items()]
        if len(groups) > 1:
            rows.append([*first, "**mean**", *summarise_all(list(groups.values()))])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def sizes_of(line: Line) -> tuple[int, int]:
    normal, _, pool = line.cell.task.partition("/")[2].partition(" normal, pool of ")
    return int(normal), int(pool)


def numbers_of(lines: Sequence[Line]) -> list[float]:
    """Means over seeds, in the order of the table."""
    names = ["auc untuned", *(f"auc by {name}" for name in CANDIDATES)]
    means = [float(np.mean([x.details[name] for x in lines])) for name in names]
    means.append(float(np.mean([x.auc for x in lines])))
    more = ["pool auc untuned", "pool auc", "found 1 % untuned", "found 1 %"]
    more += ["flagged 1 % untuned", "flagged 1 %"]
    means += [float(np.mean([x.details[name] for x in lines])) for name in more]
    means.append(float(np.mean([x.details["taught"] > 0 for x in lines])))
    means.append(float(np.median([x.details["p of what is taught"] for x in lines])))
    return means


def summarise(lines: Sequence[Line]) -> list[str]:
    return [*format_numbers(numbers_of(lines)), str(len(lines))]


def summarise_all(groups: Sequence[Sequence[Line]]) -> list[str]:
    """The mean over categories."""
    means = np.mean([numbers_of(group) for group in groups], axis=0)
    return [*format_numbers(list(means)), str(min(map(len, groups)))]


def format_numbers(means: list[float]) -> list[str]:
    n = len(CANDIDATES) + 4
    found, flagged = means[n : n + 2], means[n + 2 : n + 4]
    return [
        *(f"{x:.3f}" for x in means[:n]),
        f"{100 * found[0]:.0f} → {100 * found[1]:.0f} %",
        f"{100 * flagged[0]:.1f} → {100 * flagged[1]:.1f} %",
        f"{100 * means[-2]:.0f} %",
        f"{means[-1]:.1g}",
    ]
