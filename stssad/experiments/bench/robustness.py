"""Does the default's score hold where light differs, kinds of defects mix, or a pool is clean?

Every image of a category is encoded once for each light; a task is then a choice of rows. What is
scored is what `stssad fit` would score: the augmentation, which explains and doesn't score, is not
tuned here.
"""

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...augment.light import draw_light, relit
from ...encoders.efficientnet_lite import EfficientNetLite0
from ...encoders.encoding import encode
from ...encoders.features import Features, NormalFeatures
from ...images.reading import Reading
from ...images.source import find_images, read_images
from ...methods.anomaly_model import AnomalyModel
from ...methods.pretrained import Scored, Taught, learn_from, pool_folds_for
from ...registry import ENCODERS
from ...scoring.conditions import find_differences
from ...scoring.contamination import contamination
from ...scoring.decision import FALSE_DISCOVERIES
from ...scoring.false_discovery import discovery_threshold
from ...scoring.folds import random_folds
from ...scoring.gaussian import ImageGaussian
from ...scoring.memory_bank import MemoryBank
from ...scoring.score import SMALL_BANK, PretrainedScore
from ...scoring.tail import NormalTail
from ...settings import PretrainedSettings
from ...version import __version__
from ..testbeds import mvtec
from ..testbeds.light import LIGHTS
from ..testbeds.task import Task
from ..testbeds.task_images import TaskImages
from .cell import Cell, Line, Store
from .methods import PRETRAINED, RATES

TESTBED = "robustness"  # of the result lines
MIXED = "all kinds"
SIZE, SMALL = 256, PretrainedSettings().tuning_size


@dataclass(frozen=True)
class Category:
    """Every image of a category, by its row; `rows` has those of train, good and each defect."""

    name: str
    images: Tensor
    rows: dict[str, Tensor]
    encoder: nn.Module

    @staticmethod
    def read(root: Path, name: str, encoder: nn.Module | None = None) -> "Category":
        folder = mvtec.category_folder(root, name)
        kinds = ["good", *mvtec.defects(root, name)]
        groups = {
            "train": folder / "train/good",
            **{kind: folder / "test" / kind for kind in kinds},
        }
        images, rows, n = [], {}, 0
        for group, path in groups.items():
            images.append(read_images(find_images(path), Reading(SIZE))[0])
            rows[group] = torch.arange(n, n + len(images[-1]))
            n += len(images[-1])
        return Category(name, torch.cat(images), rows, (encoder or EfficientNetLite0()).eval())

    @property
    def defects(self) -> list[str]:
        return [kind for kind in self.rows if kind not in ("train", "good")]

    def parts(self, kind: str) -> TaskImages:
        """Rows instead of images: protocols only choose among them."""
        of_kind = [self.rows[each] for each in (self.defects if kind == MIXED else [kind])]
        return TaskImages(
            f"{self.name}/{kind}", self.rows["train"], self.rows["good"], torch.cat(of_kind)
        )

    def features(self, light: str) -> Features:
        return encode(self.encoder, LIGHTS[light](self.images), SMALL)

    def normal(self, features: Features) -> NormalFeatures:
        """All training images, and each once in other light."""
        train = self.rows["train"]
        noise = draw_light(len(train), torch.Generator().manual_seed(0))
        images = self.images[train]
        copies = encode(self.encoder, images, SMALL, lambda x, rows: relit(x, noise[rows]))
        return NormalFeatures(features[train], copies, torch.arange(len(train)))


@dataclass(frozen=True)
class Question:
    """What is asked of a category: under which light, of which pools, with which score."""

    lights: Sequence[str] = ("",)
    kinds: Sequence[str] | None = None  # of defects; None: each by itself
    contamination: float = 0.1
    score: PretrainedScore | None = None  # None: the default's
    changes: tuple[tuple[str, float | str], ...] = ()  # what differs from the default, in words


def cell_of(category: str, kind: str, light: str, seed: int, asked: Question) -> Cell:
    changes = {**dict(asked.changes), **({"light": light} if light else {})}
    task = f"{category}/{kind}"
    return Cell(
        TESTBED, task, PRETRAINED, seed, "inductive", "imagenet", asked.contamination, changes
    )


def answer(
    category: Category,
    features: dict[str, Features],
    normal: NormalFeatures,
    asked: Question,
    seeds: int,
    done: set[str],
) -> Iterator[Line]:
    """A line for each kind, seed and light that isn't there yet."""
    for kind in asked.kinds or category.defects:
        for seed in range(seeds):
            cells = {x: cell_of(category.name, kind, x, seed, asked) for x in asked.lights}
            todo = {light: cell for light, cell in cells.items() if cell.key not in done}
            if not todo:
                continue
            task = pool_of(category, kind, seed, asked.contamination)
            train = normal.among(task.train)
            fold = random_folds(len(train), seed)
            scorer = PretrainedScore.for_features(normal.features)
            scorer = copy.deepcopy(asked.score) or scorer
            crossed = scorer.fit(train, fold, seed)
            for light, cell in todo.items():
                model = AnomalyModel(category.encoder, copy.deepcopy(scorer), SIZE, SMALL)
                of_normal = model.scorer.calibrate(crossed)  # type: ignore[operator]
                scored = Scored(model, fold, of_normal, crossed)
                pool = LIGHTS[light](category.images[task.pool])
                pool_fold = pool_folds_for(pool, seed, fold)
                differs = bool(find_differences(category.images[task.train], pool))
                taught = learn_from(features[light][task.pool], pool_fold, train, scored, differs)
                line = line_of(cell, task, scored, taught, features[light][task.test])
                details = pool_details(category, task, taught)
                yield replace(line, details={**line.details, **details})


def pool_of(category: Category, kind: str, seed: int, share: float) -> Task:
    """As the benchmark divides images; without any anomalies if the share is zero."""
    task = category.parts(kind).task("inductive", seed, share or 0.1)
    if share:
        return task
    anomalous = torch.isin(task.pool, torch.cat([category.rows[kind] for kind in category.defects]))
    return Task(task.name, task.train, task.pool[~anomalous], task.test, task.test_labels)


def line_of(cell: Cell, task: Task, scored: Scored, taught: Taught, test: Features) -> Line:
    scores = scored.model.score_features(test).scores.numpy()
    untuned = taught.untaught(test).scores.numpy()
    normal = taught.of_normal.scores.numpy()
    share = contamination(taught.untaught_pool.numpy(), scored.of_normal.scores.numpy())
    details = {
        "auc untuned": task.auc(untuned),
        "taught": taught.trial.weight,
        "p of what is taught": taught.trial.gain.p_value,
        "outliers": taught.lesson.n_outliers,
        "agreement": taught.lesson.agreement,
        "contamination": share.estimate,
        "contamination low": share.low,
        "contamination high": share.high,
        "looks clean": float(share.looks_clean),
        "anomalous": anomalous_share(task, cell),
    }
    for rate in RATES:
        limit = NormalTail.of(normal).threshold(rate)
        flagged, found = task.shares_above(limit, scores)
        details |= {f"flagged {100 * rate:g} %": flagged, f"found {100 * rate:g} %": found}
    rounded = {name: float(f"{value:.4g}") for name, value in details.items()}
    counts = (len(task.train), len(task.pool), len(task.test))
    return Line(cell, task.auc(scores), 0.0, {}, __version__, *counts, details=rounded)


def pool_details(category: Category, task: Task, taught: Taught) -> dict[str, float]:
    """What the default decision does with the pool, by its false discovery rate."""
    pool, tail = taught.of_pool.scores.numpy(), NormalTail.of(taught.of_normal.scores.numpy())
    defects = torch.cat([category.rows[kind] for kind in category.defects])
    anomalous = torch.isin(task.pool, defects).numpy()
    flagged = pool > discovery_threshold(pool, tail, FALSE_DISCOVERIES)
    details = {"pool false": float(flagged[~anomalous].sum() / max(1, flagged.sum()))}
    if anomalous.any():
        details["pool found"] = float(flagged[anomalous].mean())
    return {name: float(f"{value:.4g}") for name, value in details.items()}


def anomalous_share(task: Task, cell: Cell) -> float:
    """Of the pool, as the protocol made it."""
    if not cell.contamination:
        return 0.0
    n_normal = round(len(task.pool) * (1 - cell.contamination))
    return (len(task.pool) - n_normal) / len(task.pool)


def changed(
    name: str, value: float, gaussian: ImageGaussian | None = None, **bank: Any
) -> Question:
    """One constant with another value, on pools that mix all kinds."""
    score = PretrainedScore(gaussian, MemoryBank(**bank), MemoryBank(SMALL_BANK, **bank))
    return Question(kinds=(MIXED,), score=score, changes=((name, value),))


LIGHT = Question(lights=tuple(LIGHTS))
QUESTIONS: dict[str, list[Question]] = {
    "light": [LIGHT],
    "mixed": [Question(kinds=(MIXED,), contamination=share) for share in (0.1, 0.3)],
    "contamination": [Question(contamination=share) for share in (0.0, 0.3)],
    "constants": [
        *(changed("image nuisance", k, ImageGaussian(n_nuisance=k)) for k in (0, 3, 8)),
        *(changed("patch nuisance", k, n_nuisance=k) for k in (0, 8)),
        *(changed("highest", k, n_highest=k) for k in (1, 5)),
        *(changed("directions", k, ImageGaussian(directions=k)) for k in (0.0, 30.0, 300.0)),
        Question(kinds=(MIXED,), score=PretrainedScore(bank=MemoryBank()), changes=(("sizes", 1),)),
    ],
}


def run_robustness(
    category: str,
    root: Path,
    which: Sequence[str],
    seeds: int,
    store: Store,
    encoder: str | None = None,
) -> Iterator[Line]:
    """Every question of those names, for one category; what is there isn't asked again."""
    done = {line.cell.key for line in store.lines(TESTBED)}
    questions = [question for name in which for question in QUESTIONS[name]]
    own = None
    if encoder is not None:
        own = ENCODERS[encoder]()
        questions = [replace(q, changes=(*q.changes, ("encoder", encoder))) for q in questions]
    images = Category.read(root, category, own)
    lights = {light for question in questions for light in question.lights}
    began = time.perf_counter()
    features = {light: images.features(light) for light in sorted(lights)}
    each = (time.perf_counter() - began) / (len(lights) * len(images.images))
    normal = images.normal(features[""] if "" in features else images.features(""))
    for question in questions:
        for line in answer(images, features, normal, question, seeds, done):
            timed = replace(line, details={**line.details, "encoding ms": round(1000 * each, 1)})
            store.append([timed])
            yield timed
