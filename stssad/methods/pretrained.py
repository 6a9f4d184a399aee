"""The pretrained method: a frozen encoder, augmentation types tuned by shift alignment, evidence
on halves of the images, and a calibrated score of image-level Gaussian and memory bank.

docs/beyond-the-paper.md has the derivation.
"""

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..augment import Augmentation
from ..encoders.efficientnet_lite import EfficientNetLite0
from ..encoders.encoder import embedding_dim
from ..encoders.encoding import encode
from ..features import Features
from ..registry import AUGMENTATIONS, DEFAULT_TYPES
from ..scoring.anomaly_map import MapScale
from ..scoring.calibration import CalibratedSum, Scores
from ..scoring.evidence import Evidence, evidence_score, halves
from ..scoring.gaussian import ImageGaussian
from ..scoring.memory_bank import MemoryBank
from ..scoring.part import Part
from ..scoring.threshold import held_out_split
from ..scoring.whitening import Whitening, cross_fitted, effective_dimension
from ..settings import PretrainedSettings
from ..tuning.frozen_tuner import FrozenRecord
from ..tuning.restarts import run_all
from ..tuning.shift_alignment import alignment, shift_alignment
from ..tuning.val_loss import ValLoss
from .advice import about_counts
from .anomaly_model import AnomalyModel
from .frozen_restart import FrozenRestart, FrozenResult, PretrainedCandidate
from .problem import Choices, Fitted, Problem, Transient, check_counts


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
        normal = encode(encoder, train)
        pool = None if problem.pool is None else encode(encoder, problem.pool)
        tuned = None if pool is None else tuned_to(problem, encoder, train, normal, pool)
        parts = scoring_parts(problem.choices.parts, normal, tuned)
        scorer = CalibratedSum(parts).to(problem.device)
        of_normal = scorer.fit(normal, problem.seed)
        model = AnomalyModel(encoder, scorer, problem.image_size)
        of_pool = None if pool is None else model.score_features(pool)
        normal_scores = model.score_all(held_out).scores if len(held_out) else of_normal.scores
        n_pool = None if pool is None else len(pool)
        found = Fitted(
            model=model,
            normal_scores=normal_scores,
            pool_scores=None if of_pool is None else of_pool.scores,
            train_index=kept,
            held_out_index=held,
            candidates=[],
            chosen=None,
            augmentation=None,
            warnings=about_counts(n_pool, normal_scores),
            map_scale=map_scale(of_normal, of_pool),
            transient=Transient(normal.pooled),
        )
        return found if tuned is None else tuned.into(found, pool, of_pool)

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


@dataclass(frozen=True)
class Tuned:
    """Every restart, the chosen one, and whether the pool bears it out."""

    restarts: list[FrozenRestart]
    results: list[FrozenResult]
    chosen: int
    evidence: Evidence
    dimension: float

    def into(self, found: Fitted, pool: Features | None, of_pool: Scores | None) -> Fitted:
        assert pool is not None and of_pool is not None
        return replace(
            found,
            candidates=[result.candidate for result in self.results],
            chosen=self.chosen,
            augmentation=self.restarts[self.chosen].augmentation,
            evidence=self.evidence,
            transient=replace(
                found.transient,
                Z_pool=pool.pooled,
                pool_maps=of_pool.maps,
                shifts=[result.shift for result in self.results],
                dimension=self.dimension,
            ),
        )


def tuned_to(
    problem: Problem, encoder: nn.Module, train: Tensor, normal: Features, pool: Features
) -> Tuned:
    """Every initial value of every augmentation type, the best by J, and the evidence for it."""
    dimension = effective_dimension(cross_fitted(normal.pooled, problem.seed))
    restarts = restarts_of(problem, encoder, train, normal.pooled, pool.pooled, dimension)
    results = run_all(restarts, problem.jobs, problem.progress)
    chosen = max(results, key=lambda result: result.shift.alignment).candidate.number
    evidence = weigh(problem, restarts, results, chosen)
    return Tuned(restarts, results, chosen, evidence, dimension)


def scoring_parts(given: list[Part] | None, normal: Features, tuned: Tuned | None) -> list[Part]:
    """The parts of the score; those that can are told the direction, if the pool bears it out."""
    if given is None:
        given = [ImageGaussian(), MemoryBank()] if normal.is_spatial else [ImageGaussian()]
    parts = copy.deepcopy(given)
    if tuned is not None:
        shift = tuned.results[tuned.chosen].shift
        weight = shift.weight(tuned.dimension) if tuned.evidence.fits else 0.0
        for part in parts:
            if hasattr(part, "up_weight"):
                part.up_weight(shift.shift, weight)
    return parts


def map_scale(of_normal: Scores, of_pool: Scores | None) -> MapScale | None:
    if of_normal.maps is None:
        return None
    return MapScale.of(of_normal.maps, None if of_pool is None else of_pool.maps)


def weigh(
    problem: Problem, restarts: list[FrozenRestart], results: list[FrozenResult], chosen: int
) -> Evidence:
    """Two restarts more, each on half of the images, tested on the other half."""
    first = restarts[0]
    Z_trn, Z_val, seed = first.Z_trn, first.Z_val, problem.seed
    whitening = Whitening.of(Z_trn)
    shifts = whitening.shift(torch.stack([result.shift.shift for result in results]))
    of_normal, of_pool = halves(len(Z_trn), seed), halves(len(Z_val), seed)
    again = []
    for k, (n, p) in enumerate(zip(of_normal, of_pool, strict=True)):
        moved = Z_val[p].double().mean(dim=0) - Z_trn[n].double().mean(dim=0)
        best = restarts[int(alignment(shifts, whitening.shift(moved)).argmax())]
        half = replace(
            best, number=len(restarts) + k, train=first.train[n], Z_trn=Z_trn[n], Z_val=Z_val[p]
        )
        again.append(half)
    one, other = run_all(again, problem.jobs, problem.progress)
    crossed = cross_fitted(Z_trn, seed)
    z = evidence_score(
        normal=(crossed[of_normal[0]], crossed[of_normal[1]]),
        pool=(whitening(Z_val[of_pool[0]].double()), whitening(Z_val[of_pool[1]].double())),
        shifts=(whitening.shift(one.shift.shift), whitening.shift(other.shift.shift)),
    )
    tested = (one.candidate.augmentation, other.candidate.augmentation)
    return Evidence(results[chosen].shift.alignment, z, tested)


def restarts_of(
    problem: Problem, encoder: nn.Module, train: Tensor, Z_trn: Tensor, Z_val: Tensor,
    dimension: float,
) -> list[FrozenRestart]:  # fmt: skip
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
            train=train,
            Z_trn=Z_trn,
            Z_val=Z_val,
            settings=choices.settings,
            val_loss=choices.val_loss,
            seed=problem.seed,
            dimension=dimension,
            checkpoints=problem.checkpoints,
        )
        for number, (augmentation, a) in enumerate(starts)
    ]
