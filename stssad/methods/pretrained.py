"""The pretrained method: encode, score, learn from the pool, decide.

The encoder is frozen; the score sums the distance of the image's embedding from the normal ones
under a Gaussian and that of its most unusual patches from memory banks. docs/beyond-the-paper.md
has the derivation. What kind of anomaly the pool holds is `explain`'s, and scores nothing.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..augment import Augmentation
from ..augment.light import draw_light, relit
from ..encoders.encoder import embedding_dim
from ..encoders.encoding import Change, encode
from ..encoders.engine import CompiledEncoder, compiled
from ..encoders.features import Features, NormalFeatures
from ..images.twins import make_thumbnails, twin_groups
from ..registry import AUGMENTATIONS, DEFAULTS, ENCODERS
from ..scoring.anomaly_map import MapScale
from ..scoring.conditions import find_differences, measure_conditions
from ..scoring.contamination import contamination
from ..scoring.folds import PartScores, joined_folds, keep_twins_together, random_folds
from ..scoring.lesson import Lesson, outlier_limit
from ..scoring.pool_auc import Sides
from ..scoring.pool_part import CANDIDATES, PoolPart, PoolProblem, Trial, choose_part
from ..scoring.score import PretrainedScore, Scores
from ..scoring.threshold import held_out_split
from ..settings import PretrainedSettings
from ..tuning.frozen_tuner import FrozenRecord
from ..tuning.progress import Stage, StageEvent
from ..tuning.restarts import own_seed
from ..tuning.shift_alignment import shift_alignment
from ..tuning.val_loss import ValLoss
from .advice import about_conditions, about_counts
from .anomaly_model import AnomalyModel
from .explain import explain_by_tuning
from .frozen_restart import PretrainedCandidate
from .problem import Choices, Explanation, FitProblem, Fitted, PoolResult, Workings, check_counts

MOST_RELIT = 300  # images in other light, which say what is to be left out
RELIT_SEED = 1_000_033  # own number of their seed, so that nothing else draws the same


class PretrainedMethod:
    """What most users get."""

    name = "pretrained"
    trains = False
    settings_type = PretrainedSettings

    def choices(
        self,
        augmentations: list[Augmentation] | None,
        encoder: nn.Module | None,
        settings: PretrainedSettings | None,
        val_loss: ValLoss | None,
    ) -> Choices:
        default = DEFAULTS[self.name]
        return Choices(
            augmentations=augmentations or [AUGMENTATIONS[x]() for x in default.augmentations],
            encoder=encoder or ENCODERS[default.encoder](),
            settings=settings or PretrainedSettings(),
            val_loss=val_loss or shift_alignment,
        )

    def fit(self, problem: FitProblem) -> tuple[Fitted, Workings]:
        settings = problem.choices.settings
        train_index, held_out_index = held_out_split(
            len(problem.train), settings.holdout_share, problem.seed
        )
        train, held_out = problem.train[train_index], problem.train[held_out_index]
        check_counts(train, problem.pool, len(held_out))
        encoding = Encoding.of(problem)
        normal = encode_normal(problem, encoding, train)
        score = PretrainedScore.for_features(normal.features).to(problem.device)
        small_size = encoding.small_size if score.small_bank is not None else None
        model = AnomalyModel(encoding.encoder, score, problem.image_size, small_size)
        scored = fit_score(problem, model, train, normal)
        fitted = Fitted(
            model=model,
            normal_scores=scored.of_normal.scores,
            train_index=train_index,
            held_out_index=held_out_index,
            normal_conditions=measure_conditions(held_out if len(held_out) else train),
            warnings=[],
            map_scale=map_scale(scored.of_normal, None),
        )
        workings = Workings(normal, None, crossed=scored.crossed)
        if problem.pool is not None:
            pool = encode_pool(problem, encoding, problem.pool)
            fitted, workings = learn_pool(problem, fitted, workings, scored, pool)
        if len(held_out):
            unseen = encoding(held_out, lambda n_done: None)
            fitted = replace(fitted, normal_scores=model.score_features(unseen).scores)
            workings = replace(workings, held_out=unseen)
        n_pool = None if problem.pool is None else len(problem.pool)
        fitted.warnings[:0] = about_counts(n_pool, fitted.normal_scores)
        return fitted, workings

    def explain(
        self, problem: FitProblem, fitted: Fitted, workings: Workings | None
    ) -> Explanation | None:
        if problem.pool is None:
            return None
        train = problem.train[fitted.train_index]
        if workings is None:
            encoding = Encoding.of(problem)
            normal = encode_normal(problem, encoding, train)
            workings = Workings(normal, encode_pool(problem, encoding, problem.pool))
        assert workings.pool is not None
        encoder = fitted.model.encoder
        return explain_by_tuning(problem, encoder, train, workings.normal, workings.pool)

    def empty_score(self, config: dict[str, Any]) -> nn.Module:
        return PretrainedScore.from_config(config)

    def candidate(self, content: dict[str, Any]) -> PretrainedCandidate:
        history = [FrozenRecord(**r) for r in content["history"]]
        return PretrainedCandidate(**{**content, "history": history})

    def learned(self, candidate: PretrainedCandidate, n_types: int) -> dict[str, Any]:
        return {"type": candidate.augmentation, **candidate.learned}


pretrained = PretrainedMethod()


def copy_encoder(problem: FitProblem) -> nn.Module:
    """The encoder on its device, its weights as they are, tried on an empty image."""
    embedding_dim(problem.choices.encoder, problem.image_size)
    encoder = copy.deepcopy(problem.choices.encoder)
    return encoder.to(problem.device).eval().requires_grad_(False)


def make_notifier(problem: FitProblem, stage: Stage, n_most: int) -> Callable[[int], None]:
    """Reports how far a stage of the fit is to whoever shows progress."""

    def notify(n_done: int) -> None:
        if problem.progress is not None:
            problem.progress(StageEvent(stage, n_done, n_most))

    return notify


@dataclass(frozen=True)
class Encoding:
    """How images are encoded in a fit: at one size or two, in which engine.

    The second size, where images are large: the augmentation is tuned there, and a second memory
    bank sees more of the object in each patch.
    """

    encoder: nn.Module
    small_size: int | None
    compiled: CompiledEncoder | None

    @staticmethod
    def of(problem: FitProblem) -> "Encoding":
        settings = problem.choices.settings
        assert isinstance(settings, PretrainedSettings)
        encoder, size = copy_encoder(problem), problem.image_size
        small_size = settings.tuning_size if size > settings.tuning_size else None
        n_pool = 0 if problem.pool is None else len(problem.pool)
        n_images = len(problem.train) + min(MOST_RELIT, 2 * len(problem.train)) + n_pool
        engine = problem.engine
        if engine == "auto" and not ENCODERS.holds(type(encoder)):
            engine = "torch"  # what an encoder of one's own does, its graph may not
        in_onnx = compiled(encoder, size, small_size, engine, problem.device, n_images)
        return Encoding(encoder, small_size, in_onnx)

    def __call__(
        self, images: Tensor, on_done: Callable[[int], None], change: Change | None = None
    ) -> Features:
        return encode(self.encoder, images, self.small_size, change, on_done, self.compiled)


def encode_normal(problem: FitProblem, encoding: Encoding, train: Tensor) -> NormalFeatures:
    """Normal images, and some of them in other light: every one twice, or as many as suffice."""
    generator = torch.Generator().manual_seed(own_seed(problem.seed, RELIT_SEED))
    n_copies = min(MOST_RELIT, 2 * len(train))
    source = torch.randperm(len(train), generator=generator).repeat(2)[:n_copies]
    noise = draw_light(n_copies, generator)

    def change(images: Tensor, rows: slice) -> Tensor:
        return relit(images, noise[rows])

    normal = encoding(train, make_notifier(problem, Stage.NORMAL, len(train)))
    copies = encoding(train[source], make_notifier(problem, Stage.RELIT, n_copies), change)
    return NormalFeatures(normal, copies, source)


def encode_pool(problem: FitProblem, encoding: Encoding, pool: Tensor) -> Features:
    return encoding(pool, make_notifier(problem, Stage.POOL, len(pool)))


@dataclass(frozen=True)
class Scored:
    """A score that is fitted to normal images, and what it says of them."""

    model: AnomalyModel
    fold: Tensor
    of_normal: Scores  # each as if it hadn't been seen
    crossed: list[PartScores]  # the same of each part


def folds_for(images: Tensor, seed: int) -> Tensor:
    """Folds of normal images, in which copies of one image stay together."""
    return keep_twins_together(random_folds(len(images), seed), find_first(images))


def pool_folds_for(images: Tensor, seed: int, fold: Tensor) -> Tensor:
    """The same of the pool, as many as there are of normal images: no copy teaches another."""
    n_folds = int(fold.max()) + 1
    return joined_folds(random_folds(len(images), seed, n_folds), find_first(images))


def find_first(images: Tensor) -> Tensor:
    return torch.from_numpy(twin_groups(make_thumbnails(images)))


def fit_score(
    problem: FitProblem, model: AnomalyModel, images: Tensor, normal: NormalFeatures
) -> Scored:
    """Fit the parts to normal images, and bring them to one scale."""
    score = model.scorer
    assert isinstance(score, PretrainedScore)
    fold = folds_for(images, problem.seed)
    notify = make_notifier(problem, Stage.SCORE, 1)
    notify(0)
    crossed = score.fit(normal, fold, problem.seed)
    notify(1)
    return Scored(model, fold, score.calibrate(crossed), crossed)


@dataclass(frozen=True)
class Taught:
    """What the pool has taught a score, and what it says of pool and normal images now."""

    of_normal: Scores
    of_pool: Scores
    crossed: list[PartScores]
    lesson: Lesson
    trial: Trial
    untaught: PretrainedScore  # the score before
    untaught_pool: Tensor  # what it said of the pool


def learn_from(
    pool: Features, pool_fold: Tensor, normal: NormalFeatures, scored: Scored, differs: bool
) -> Taught:
    """Let the pool teach the score a direction, if images that had no part in it say that it helps;
    else its outliers teach the one that they share. `differs`: the pool was taken under other
    conditions, and that is what a direction would show."""
    model, score = scored.model, scored.model.scorer
    assert isinstance(score, PretrainedScore)
    untaught, of_pool = copy.deepcopy(score), model.score_features(pool)
    of_all = scored.of_normal
    problem = score.pool_problem(normal, scored.fold, of_all, pool, pool_fold, of_pool.maps)
    trial = choose_part(problem)
    if differs:
        trial = replace(trial, weight=0.0, differs=True)
    before = of_pool.scores
    outliers = pool[(before > outlier_limit(scored.of_normal.scores)).nonzero()[:, 0]]
    if trial.is_taught:
        score.gaussian.forget()
        lesson = Lesson(len(outliers), 0.0, 0.0)
        of_normal, of_pool = learn_direction(score, problem, trial, scored.of_normal, of_pool)
        return Taught(of_normal, of_pool, scored.crossed, lesson, trial, untaught, before)
    crossed, lesson = score.learn(outliers, normal, scored.fold, scored.crossed)
    if lesson.weight == 0:
        return Taught(scored.of_normal, of_pool, scored.crossed, lesson, trial, untaught, before)
    of_normal, of_pool = score.calibrate(crossed), model.score_features(pool)
    return Taught(of_normal, of_pool, crossed, lesson, trial, untaught, before)


def learn_direction(
    score: PretrainedScore, problem: PoolProblem, trial: Trial, of_normal: Scores, of_pool: Scores
) -> tuple[Scores, Scores]:
    """Add what was tried to the score; scores of normal images and pool with it, each along a
    direction that it had no part in."""
    scores = Sides(of_normal.scores.numpy(), of_pool.scores.numpy())
    direction, along = problem.embeddings.learn(CANDIDATES[trial.candidate](scores))
    score.pool_part = PoolPart.of(direction, trial.weight, along, scores)
    summed = score.pool_part.sums(scores, along)
    return (
        replace(of_normal, scores=torch.from_numpy(summed.normal)),
        replace(of_pool, scores=torch.from_numpy(summed.pool)),
    )


def learn_pool(
    problem: FitProblem, fitted: Fitted, workings: Workings, scored: Scored, pool: Features
) -> tuple[Fitted, Workings]:
    """The fit after it has learned from the pool, and what it says of it."""
    assert problem.pool is not None
    differences = find_differences(problem.train[fitted.train_index], problem.pool)
    pool_fold = pool_folds_for(problem.pool, problem.seed, scored.fold)
    taught = learn_from(pool, pool_fold, workings.normal, scored, bool(differences))
    fitted.warnings.extend(about_conditions(differences))
    share = contamination(taught.untaught_pool.numpy(), scored.of_normal.scores.numpy())
    fitted = replace(
        fitted,
        normal_scores=taught.of_normal.scores,
        map_scale=map_scale(taught.of_normal, taught.of_pool),
        pool=PoolResult(taught.of_pool.scores, taught.lesson, share, taught.trial),
    )
    maps = taught.of_pool.maps
    return fitted, replace(
        workings,
        pool=pool,
        pool_maps=maps,
        pool_fold=pool_fold,
        crossed=taught.crossed,
        untaught=taught.untaught,
    )


def map_scale(of_normal: Scores, of_pool: Scores | None) -> MapScale | None:
    if of_normal.maps is None:
        return None
    return MapScale.of(of_normal.maps, None if of_pool is None else of_pool.maps)
