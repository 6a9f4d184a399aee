"""The paper's method: Algorithm 1 from several initial values, the choice by score variance."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..augment import Augmentation
from ..encoders.detector import Detector
from ..encoders.encoding import embed_all
from ..encoders.features import Features, NormalFeatures
from ..parallel.threads import torch_threads
from ..registry import AUGMENTATIONS, DEFAULTS, ENCODERS
from ..scoring.conditions import measure_conditions
from ..scoring.contamination import contamination
from ..scoring.gaussian import GaussianDensity, cross_fitted_scores
from ..scoring.score import PaperScore
from ..scoring.threshold import held_out_split
from ..settings import Settings
from ..tuning.checkpoint import Checkpointer, fingerprint, source
from ..tuning.descent import random_index
from ..tuning.problem import TuningProblem
from ..tuning.progress import Notify, RestartEvent
from ..tuning.restarts import own_seed, run_all
from ..tuning.tuner import TunerState, initial_state, train_on, tune, warm_start
from ..tuning.tuner_codec import TunerCodec
from ..tuning.val_loss import ValLoss, mean_distance_loss
from .advice import about_counts
from .anomaly_model import AnomalyModel
from .paper_advice import about_restarts
from .paper_candidate import PaperCandidate, choose
from .problem import (
    Choices,
    Explanation,
    FitProblem,
    Fitted,
    PoolResult,
    Workings,
    check_counts,
)

# Settings without effect on a warm start. The number of updates has one, by the schedule of α.
AFTER_WARM_START = (
    "holdout_share",
    "a_step_size",
    "hypergradient",
    "val_train_samples",
    "val_augmented_samples",
    "val_pool_samples",
    "chunk_size",
    "smoothing",
    "patience",
    "end_state",
)


class PaperMethod:
    """ST-SSAD (Yoo, Zhao, Akoglu; KDD 2025)."""

    name = "paper"
    trains = True
    settings_type = Settings

    def choices(
        self,
        augmentations: list[Augmentation] | None,
        encoder: nn.Module | None,
        settings: Settings | None,
        val_loss: ValLoss | None,
    ) -> Choices:
        settings = settings or Settings.quick()
        default = DEFAULTS[self.name]
        return Choices(
            augmentations=augmentations or [AUGMENTATIONS[x]() for x in default.augmentations],
            encoder=encoder or ENCODERS[default.encoder](settings.width),
            settings=settings,
            val_loss=val_loss or mean_distance_loss,
        )

    def fit(self, problem: FitProblem) -> tuple[Fitted, Workings]:
        settings, pool = problem.choices.settings, problem.pool
        if pool is None:
            raise ValueError(
                "the paper's method trains while it tunes to an unlabeled pool; pass one, or use "
                "method='pretrained', which needs none"
            )
        train_index, held_out_index = held_out_split(
            len(problem.train), settings.holdout_share, problem.seed
        )
        train, held_out = problem.train[train_index], problem.train[held_out_index]
        check_counts(train, pool, len(held_out))
        restarts = make_restarts(problem, train, pool)
        results = run_all(restarts, problem.jobs, problem.progress)
        candidates = [result.candidate for result in results]
        chosen = choose(candidates)
        best = results[chosen]
        model = AnomalyModel(best.encoder, PaperScore(best.density), problem.image_size)
        if len(held_out):
            normal_scores = model.score_all(held_out).scores
        else:
            normal_scores = cross_fitted_scores(best.Z_trn, seed=problem.seed)
        pool_scores = model.score_features(Features(best.Z_pool)).scores
        warnings = [*about_restarts(candidates, chosen), *about_counts(len(pool), normal_scores)]
        share = contamination(pool_scores.numpy(), normal_scores.numpy())
        fitted = Fitted(
            model=model,
            normal_scores=normal_scores,
            train_index=train_index,
            held_out_index=held_out_index,
            normal_conditions=measure_conditions(held_out if len(held_out) else train),
            warnings=warnings,
            pool=PoolResult(pool_scores, None, share),
            explanation=Explanation(candidates, chosen, restarts[chosen].augmentation),
        )
        return fitted, Workings(NormalFeatures.plain(best.Z_trn), Features(best.Z_pool))

    def explain(
        self, problem: FitProblem, fitted: Fitted, workings: Workings | None
    ) -> Explanation | None:
        """Tuning is the fit itself here."""
        return fitted.explanation

    def empty_score(self, config: dict[str, Any]) -> nn.Module:
        return PaperScore()

    def candidate(self, content: dict[str, Any]) -> PaperCandidate:
        return PaperCandidate.from_json(content)

    def learned(self, candidate: PaperCandidate, n_types: int) -> dict[str, Any]:
        several = {"type": candidate.augmentation} if n_types > 1 else {}
        return {**several, **candidate.learned}


paper = PaperMethod()


@dataclass(frozen=True)
class PaperResult:
    """One restart's candidate, and its detector without the head."""

    candidate: PaperCandidate
    encoder: nn.Module
    density: GaussianDensity
    Z_trn: Tensor
    Z_pool: Tensor


@dataclass(frozen=True)
class PaperRestart:
    """All that one restart depends on."""

    number: int
    initial_a: Tensor
    augmentation: Augmentation
    encoder: nn.Module
    train: Tensor
    pool: Tensor
    settings: Settings
    val_loss: ValLoss
    seed: int
    device: str
    checkpoints: Path | None
    warm_starts: Path | None

    def run(self, notify: Notify | None = None) -> PaperResult:
        """Warm start, Algorithm 1, and the Gaussian density of its best state."""
        began, settings = time.perf_counter(), self.settings
        with torch_threads(settings.threads):
            detector = Detector(self.encoder, self.train.shape[-1], self.device)
            problem = TuningProblem(
                detector, self.augmentation, self.val_loss, self.train, self.pool, settings
            )
            state = self._tune(problem, notify)
            encoder = detector.trained_encoder(state.theta, state.buffers)
            Z_trn, Z_pool = embed_all(encoder, self.train), embed_all(encoder, self.pool)
            density = GaussianDensity().to(self.device).fit(Z_trn)
            pool_scores = density.score(Z_pool).cpu()
            change = embedding_change(problem, encoder, state.a, Z_trn, self.seed)
        seconds = time.perf_counter() - began
        candidate = PaperCandidate.of(
            self.number,
            self.augmentation,
            state,
            pool_scores,
            settings,
            self.initial_a,
            seconds,
            change,
        )
        return PaperResult(candidate, encoder, density, Z_trn, Z_pool)

    def _tune(self, problem: TuningProblem, notify: Notify | None) -> TunerState:
        """From its own checkpoint if there is one, else from a warm start that others share."""
        settings, device = self.settings, problem.detector.device
        keeper = Checkpointer(self._path, self._fingerprint, TunerCodec())
        warm_keeper = Checkpointer(self._warm_path, self._warm_fingerprint, TunerCodec())
        state = initial_state(problem, self.initial_a, own_seed(self.seed, self.number))
        own_state = keeper.resumed(state, device)
        state = own_state or warm_keeper.resumed(state, device) or state

        def progress(state: TunerState) -> None:
            n_steps = len(state.warm_losses) + len(state.history) + len(state.final_losses)
            keeper.keep(state, n_steps, state.is_over(settings))
            if notify is not None:
                notify(make_event(self, state))

        warm_start(problem.perturbed(), state, progress)
        if not state.history and not warm_keeper.is_there:
            warm_keeper.write(state)
        tune(problem.perturbed(), state, progress)
        train_on(problem, state, progress)
        return state

    @property
    def _path(self) -> Path | None:
        folder = self.checkpoints
        return folder and folder / f"restart-{self.number + 1}.safetensors"

    def _fingerprint(self) -> str:
        """Differs where the result would."""
        loss = getattr(self.val_loss, "__qualname__", self.val_loss)
        return self._digest([asdict(self.settings), loss], [self.pool])

    def _warm_fingerprint(self) -> str:
        """Differs where the warm start would, which sees neither the pool nor L_val."""
        settings = {k: v for k, v in asdict(self.settings).items() if k not in AFTER_WARM_START}
        return self._digest([settings], [])

    def _digest(self, words: list[object], tensors: list[Tensor]) -> str:
        augmentation = self.augmentation
        words = [
            *words,
            self.seed,
            self.number,
            self.initial_a.tolist(),
            type(augmentation),
            augmentation.__dict__,
            self.encoder,
            source(augmentation),
        ]
        tensors = [self.train, *tensors]
        if not hasattr(self.encoder, "reset_parameters"):  # else they are drawn from the seed
            tensors += self.encoder.state_dict().values()
        return fingerprint(words, tensors)

    @property
    def _warm_path(self) -> Path | None:
        folder = self.warm_starts
        return folder and folder / f"{self._warm_fingerprint()}.safetensors"


@torch.no_grad()
def embedding_change(
    problem: TuningProblem, encoder: nn.Module, a: Tensor, Z_trn: Tensor, seed: int
) -> float:
    """How far the augmentation moves an image's embedding, in distances between normal images.

    Medians, over at most 256 training images. Near zero where it has become the identity.
    """
    generator = torch.Generator().manual_seed(seed)
    index = random_index(len(problem.train), 256, generator)
    noise = problem.augmentation.draw(len(index), generator).to(a.device)
    augmented = problem.augment(problem.train[index], a, noise)
    Z = Z_trn[index]
    moved = torch.linalg.vector_norm(embed_all(encoder, augmented) - Z, dim=1).median()
    apart = torch.linalg.vector_norm(Z - Z.roll(1, dims=0), dim=1).median()
    return float(moved / apart.clamp_min(torch.finfo(Z.dtype).tiny))


def make_event(restart: PaperRestart, state: TunerState) -> RestartEvent:
    settings, kind = restart.settings, type(restart.augmentation).__name__
    if not state.history:
        losses = {"warm start, L_trn": state.warm_losses[-1]}
        n_done, n_most = len(state.warm_losses), settings.warm_start_epochs
        return RestartEvent(restart.number, kind, n_done, n_most, losses)
    last = state.history[-1]
    if state.final_losses:
        losses = {"at the learned augmentation, L_trn": state.final_losses[-1]}
        n_done, n_most = len(state.final_losses), settings.final_updates
        return RestartEvent(restart.number, kind, n_done, n_most, losses, last.learned)
    losses = {"L_trn": last.train_loss, "L_val": last.val_loss}
    n_done, n_most = len(state.history), settings.max_iterations
    return RestartEvent(restart.number, kind, n_done, n_most, losses, last.learned)


def make_restarts(problem: FitProblem, train: Tensor, pool: Tensor) -> list[PaperRestart]:
    """One for each initial value of each augmentation."""
    choices = problem.choices
    assert isinstance(choices.settings, Settings)
    starts = [(each, a) for each in choices.augmentations for a in each.initial_values()]
    return [
        PaperRestart(
            number=number,
            initial_a=a,
            augmentation=augmentation,
            encoder=choices.encoder,
            train=train,
            pool=pool,
            settings=choices.settings,
            val_loss=choices.val_loss,
            seed=problem.seed,
            device=problem.device,
            checkpoints=problem.checkpoints,
            warm_starts=problem.warm_starts,
        )
        for number, (augmentation, a) in enumerate(starts)
    ]
