"""The pretrained method: a frozen encoder, a calibrated score of image-level Gaussian and memory
bank, what the pool's outliers teach it, and augmentation types tuned by shift alignment.

docs/beyond-the-paper.md has the derivation.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..augment import Augmentation
from ..augment.light import draw_light, relit
from ..encoders.compiled import CompiledEncoder, compiled
from ..encoders.efficientnet_lite import EfficientNetLite0
from ..encoders.encoder import embedding_dim
from ..encoders.encoding import Change, encode, shrunk
from ..features import Features, NormalFeatures
from ..registry import AUGMENTATIONS, DEFAULT_TYPES, ENCODERS
from ..scoring.anomaly_map import MapScale
from ..scoring.calibration import CalibratedSum, Scores
from ..scoring.conditions import differences, usual
from ..scoring.contamination import contamination
from ..scoring.evidence import Evidence
from ..scoring.gaussian import ImageGaussian
from ..scoring.kinds import descriptors
from ..scoring.lesson import Lesson
from ..scoring.memory_bank import MemoryBank
from ..scoring.part import Part, PartScores, random_folds
from ..scoring.threshold import held_out_split, threshold_for
from ..settings import PretrainedSettings
from ..tuning.frozen_tuner import FrozenRecord
from ..tuning.restarts import Event, own_seed, run_all
from ..tuning.shift_alignment import shift_alignment
from ..tuning.val_loss import ValLoss
from .advice import about_conditions, about_counts
from .anomaly_model import AnomalyModel
from .evidence import weigh
from .frozen_restart import FrozenRestart, FrozenResult, PretrainedCandidate, TuningData
from .problem import Choices, Fitted, Problem, Transient, check_counts
from .refit import kept_of

SMALL_BANK = 5_000  # patches of the smaller images that are kept: there are a quarter as many
MOST_RELIT = 300  # images in other light, which say what is to be left out
OUTLIER_RATE = 0.01  # of normal images that would count among the pool's outliers
RELIT_SEED = 1_000_033  # own number of their seed, so that nothing else draws the same


class PretrainedMethod:
    """What most users get."""

    name = "pretrained"
    trains = False
    settings_type = PretrainedSettings

    def choices(
        self, augmentations: list[Augmentation] | None, encoder: nn.Module | None,
        settings: PretrainedSettings | None, val_loss: ValLoss | None, parts: list[Part] | None,
    ) -> Choices:  # fmt: skip
        return Choices(
            augmentations=augmentations or [AUGMENTATIONS[name]() for name in DEFAULT_TYPES],
            encoder=encoder or EfficientNetLite0(),
            settings=settings or PretrainedSettings(),
            val_loss=val_loss or shift_alignment,
            parts=parts,
        )

    def fit(self, problem: Problem) -> Fitted:
        settings = problem.choices.settings
        kept, held = held_out_split(len(problem.train), settings.holdout_share, problem.seed)
        train, held_out = problem.train[kept], problem.train[held]
        check_counts(train, problem.pool)
        encoder = frozen(problem)
        look = Look.of(problem, encoder)
        normal = encode_normal(problem, look, train)
        pool = encode_pool(problem, look)
        tuned = None if pool is None else tuned_to(problem, encoder, train, normal, pool)
        scored = score_with(problem, encoder, normal, pool)
        normal_scores = scored.of_normal.scores
        if len(held_out):
            normal_scores = scored.model.score_all(held_out).scores
        found = Fitted(
            model=scored.model,
            normal_scores=normal_scores,
            pool_scores=None if scored.of_pool is None else scored.of_pool.scores,
            train_index=kept,
            held_out_index=held,
            candidates=[],
            chosen=None,
            augmentation=None,
            warnings=about_counts(None if pool is None else len(pool), normal_scores),
            lesson=scored.lesson,
            map_scale=map_scale(scored.of_normal, scored.of_pool),
            normal_conditions=usual(held_out if len(held_out) else train),
            transient=Transient(normal.pooled),
        )
        if tuned is None or pool is None or scored.plain is None or scored.of_pool is None:
            return found
        assert problem.pool is not None
        found.warnings.extend(about_conditions(differences(train, problem.pool)))
        return replace(
            found,
            candidates=[result.candidate for result in tuned.results],
            chosen=tuned.chosen,
            augmentation=tuned.restarts[tuned.chosen].augmentation,
            evidence=tuned.evidence,
            contamination=contamination(scored.plain.numpy(), scored.plain_normal.numpy()),
            transient=transient(found.transient, scored, normal, pool),
        )

    def empty_scorer(self, parts: list[Part] | None) -> nn.Module:
        return CalibratedSum(parts or [])

    def candidate(self, content: dict[str, Any]) -> PretrainedCandidate:
        history = [FrozenRecord(**r) for r in content["history"]]
        return PretrainedCandidate(**{**content, "history": history})

    def learned(self, candidate: PretrainedCandidate, n_types: int) -> dict[str, Any]:
        return {"type": candidate.augmentation, **candidate.learned}


pretrained = PretrainedMethod()


def frozen(problem: Problem) -> nn.Module:
    """The encoder on its device, its weights as they are, tried on an empty image."""
    embedding_dim(problem.choices.encoder, problem.image_size)
    encoder = copy.deepcopy(problem.choices.encoder)
    return encoder.to(problem.device).eval().requires_grad_(False)


def stage(problem: Problem, number: int, words: str, n_most: int) -> Callable[[int], None]:
    """Tells whoever shows progress how far a stage of the fit is."""

    def tell(n_done: int) -> None:
        if problem.progress is not None:
            problem.progress(Event.of_stage(number, words, n_done, n_most))

    return tell


def smaller(problem: Problem) -> int | None:
    """The side at which images are looked at a second time, where they are large: the augmentation
    is tuned there, and a second memory bank sees more of the object in each patch."""
    settings = problem.choices.settings
    assert isinstance(settings, PretrainedSettings)
    return settings.tuning_size if problem.image_size > settings.tuning_size else None


@dataclass(frozen=True)
class Look:
    """How images are encoded in a fit: at one size or two, in which engine."""

    encoder: nn.Module
    small_size: int | None
    compiled: CompiledEncoder | None

    @staticmethod
    def of(problem: Problem, encoder: nn.Module) -> "Look":
        small_size = smaller(problem)
        n_pool = 0 if problem.pool is None else len(problem.pool)
        n_images = len(problem.train) + min(MOST_RELIT, 2 * len(problem.train)) + n_pool
        engine = problem.engine
        if engine == "auto" and not ENCODERS.holds(type(encoder)):
            engine = "torch"  # what an encoder of one's own does, its graph may not
        found = compiled(encoder, problem.image_size, small_size, engine, problem.device, n_images)
        return Look(encoder, small_size, found)

    def __call__(
        self, images: Tensor, on_done: Callable[[int], None], change: Change | None = None
    ) -> Features:
        return encode(self.encoder, images, self.small_size, change, on_done, self.compiled)


def encode_normal(problem: Problem, look: Look, train: Tensor) -> NormalFeatures:
    """Normal images, and some of them in other light: every one twice, or as many as suffice."""
    generator = torch.Generator().manual_seed(own_seed(problem.seed, RELIT_SEED))
    n_copies = min(MOST_RELIT, 2 * len(train))
    source = torch.randperm(len(train), generator=generator).repeat(2)[:n_copies]
    noise = draw_light(n_copies, generator)

    def change(images: Tensor, rows: slice) -> Tensor:
        return relit(images, noise[rows])

    told = stage(problem, 0, "encoding normal images", len(train))
    normal = look(train, told)
    told = stage(problem, 1, "encoding them in other light", n_copies)
    return NormalFeatures(normal, look(train[source], told, change), source)


def encode_pool(problem: Problem, look: Look) -> Features | None:
    if problem.pool is None:
        return None
    told = stage(problem, 2, "encoding the pool", len(problem.pool))
    return look(problem.pool, told)


@dataclass(frozen=True)
class Scored:
    """The fitted model, and what it says of normal images and pool."""

    model: AnomalyModel
    of_normal: Scores  # each as if it hadn't been seen
    of_pool: Scores | None
    plain_normal: Tensor  # before anything was learned from the pool
    plain: Tensor | None
    untuned: nn.Module  # the scorer then
    lesson: Lesson | None
    crossed: list[PartScores]  # what each part says of normal images, as if unseen


def score_with(
    problem: Problem, encoder: nn.Module, normal: NormalFeatures, pool: Features | None
) -> Scored:
    """Fit the score to normal images; then let the pool's own outliers teach it."""
    given = problem.choices.parts
    if given is None:
        given = usual_parts(normal.features)
    scorer = CalibratedSum(copy.deepcopy(given)).to(problem.device)
    small_size = smaller(problem) if any(looks_smaller(part) for part in given) else None
    model = AnomalyModel(encoder, scorer, problem.image_size, small_size)
    fold = random_folds(len(normal), problem.seed)
    told = stage(problem, 3, "fitting the score", 2)
    told(0)
    crossed = scorer.fit(normal, fold, problem.seed)
    told(1)
    scored = taught(model, crossed, normal, fold, pool)
    told(2)
    return scored


def usual_parts(features: Features) -> list[Part]:
    """The default's, as far as there is something for them to see."""
    parts: list[Part] = [ImageGaussian()]
    if features.is_spatial:
        parts.append(MemoryBank())
    if features.small is not None and features.small.is_spatial:
        parts.append(MemoryBank(SMALL_BANK, of_small=True))
    return parts


def looks_smaller(part: Part) -> bool:
    return getattr(part, "of_small", False)


def taught(
    model: AnomalyModel, crossed: list[PartScores], normal: NormalFeatures, fold: Tensor,
    pool: Features | None,
) -> Scored:  # fmt: skip
    """A fitted score, calibrated, and then taught by those of the pool that it finds outlying."""
    scorer = model.scorer
    assert isinstance(scorer, CalibratedSum)
    of_normal = scorer.calibrate(crossed)
    if pool is None:
        return Scored(model, of_normal, None, of_normal.scores, None, scorer, None, crossed)
    untuned = copy.deepcopy(scorer)
    plain, plain_normal = model.score_features(pool), of_normal.scores
    limit = threshold_for(plain_normal.numpy(), OUTLIER_RATE, scorer.floor)
    outliers = pool[(plain.scores > limit).nonzero()[:, 0]]
    crossed, lesson = scorer.learn(outliers, normal, fold, crossed)
    if lesson is None or lesson.weight == 0:
        return Scored(model, of_normal, plain, plain_normal, plain.scores, untuned, lesson, crossed)
    of_normal = scorer.calibrate(crossed)
    of_pool = model.score_features(pool)
    return Scored(model, of_normal, of_pool, plain_normal, plain.scores, untuned, lesson, crossed)


def transient(
    before: Transient, scored: Scored, normal: NormalFeatures, pool: Features
) -> Transient:
    """What report and refit need of the pool."""
    assert scored.of_pool is not None
    scorer = scored.model.scorer
    assert isinstance(scorer, CalibratedSum)
    maps = scored.of_pool.maps
    found = replace(before, Z_pool=pool.pooled, pool_maps=maps, untuned=scored.untuned)
    gaussian, *banks = scorer.parts
    if not isinstance(gaussian, ImageGaussian) or not all(isinstance(b, MemoryBank) for b in banks):
        return found  # parts of one's own
    kept = kept_of(scorer, normal, scored.crossed, pool)
    if not banks:
        return replace(found, kept=kept)
    whitened = gaussian.density.whitening(pool.pooled).cpu()
    bank = banks[0].bank
    assert isinstance(bank, Tensor)
    return replace(
        found, kept=kept, descriptors=descriptors(kept.far[0].patches, bank.cpu(), whitened)
    )


def map_scale(of_normal: Scores, of_pool: Scores | None) -> MapScale | None:
    if of_normal.maps is None:
        return None
    return MapScale.of(of_normal.maps, None if of_pool is None else of_pool.maps)


@dataclass(frozen=True)
class Tuned:
    """Every restart, the chosen one, and whether the pool bears it out."""

    restarts: list[FrozenRestart]
    results: list[FrozenResult]
    chosen: int
    evidence: Evidence


def tuning_data(
    problem: Problem, train: Tensor, normal: NormalFeatures, pool: Features
) -> TuningData:
    """Smaller images, where they are large: tuning looks at thousands of them."""
    if (size := smaller(problem)) is None:
        return TuningData.of(train, normal, pool.pooled)
    assert pool.small is not None
    return TuningData.of(all_shrunk(train, size), normal.small, pool.small.pooled)


def tuned_to(
    problem: Problem, encoder: nn.Module, train: Tensor, normal: NormalFeatures, pool: Features
) -> Tuned:
    """Every initial value of every augmentation type, the best by J, and the evidence for it."""
    data = tuning_data(problem, train, normal, pool)
    restarts = restarts_of(problem, encoder, data)
    results = run_all(restarts, problem.jobs, problem.progress)
    best = max(results, key=lambda result: result.shift.alignment)
    evidence = weigh(
        restarts, data, best.shift.alignment, problem.seed, problem.jobs, problem.progress
    )
    return Tuned(restarts, results, best.candidate.number, evidence)


def all_shrunk(images: Tensor, size: int) -> Tensor:
    """Any number of images at that size, stored as they were: there may be thousands."""
    if images.dtype != torch.uint8:
        return shrunk(images, size)
    chunks = torch.split(images, 64)
    return torch.cat([shrunk(c.float(), size).round().to(torch.uint8) for c in chunks])


def restarts_of(problem: Problem, encoder: nn.Module, data: TuningData) -> list[FrozenRestart]:
    """One for each initial value of each augmentation type."""
    choices = problem.choices
    assert isinstance(choices.settings, PretrainedSettings)
    starts = [(each, a) for each in choices.augmentations for a in each.initial_values()]
    return [
        FrozenRestart(
            number=number,
            initial_a=a,
            augmentation=augmentation,
            encoder=encoder,
            data=data,
            settings=choices.settings,
            val_loss=choices.val_loss,
            seed=problem.seed,
            checkpoints=problem.checkpoints,
        )
        for number, (augmentation, a) in enumerate(starts)
    ]
