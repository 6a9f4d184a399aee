"""The paper's method: Algorithm 1 from several initial values, the choice by score variance."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..augment import Augmentation
from ..augment.cutdiff import CutDiff
from ..encoders.detector import Detector
from ..encoders.encoding import embed_all
from ..encoders.resnet import ResNet18
from ..features import Features
from ..scoring.calibration import Likelihood
from ..scoring.conditions import usual
from ..scoring.contamination import contamination
from ..scoring.gaussian import GaussianDensity, cross_fitted_scores
from ..scoring.part import Part
from ..scoring.threshold import held_out_split
from ..settings import Settings
from ..storage import intact, require
from ..threads import torch_threads
from ..tuning.checkpoint import (
    Checkpointer,
    fingerprint,
    pack_tuner,
    read_checkpoint,
    source,
    unpack_tuner,
    write_checkpoint,
)
from ..tuning.descent import random_index
from ..tuning.problem import TuningProblem
from ..tuning.restarts import Event, Notify, own_seed, run_all
from ..tuning.tuner import TunerState, initial_state, train_on, tune, warm_start
from ..tuning.val_loss import ValLoss, mean_distance_loss
from .advice import about_counts, about_restarts
from .anomaly_model import AnomalyModel
from .paper_candidate import PaperCandidate, choose
from .problem import Choices, Fitted, Problem, Transient, check_counts

# Settings that a warm start doesn't feel. The number of updates it does, by the schedule of α.
AFTER_WARM_START = (
    "holdout_share", "a_step_size", "hypergradient", "val_train_samples", "val_augmented_samples",
    "val_pool_samples", "chunk_size", "smoothing", "patience", "end_state",
)  # fmt: skip


class PaperMethod:
    """ST-SSAD (Yoo, Zhao, Akoglu; KDD 2025)."""

    name = "paper"
    trains = True
    settings_type = Settings

    def choices(
        self, augmentations: list[Augmentation] | None, encoder: nn.Module | None,
        settings: Settings | None, val_loss: ValLoss | None, parts: list[Part] | None,
    ) -> Choices:  # fmt: skip
        if parts is not None:
            raise ValueError(
                "parts belong to the pretrained method; the paper's score has one, the Gaussian's"
            )
        settings = settings or Settings.quick()
        return Choices(
            augmentations=augmentations or [CutDiff()],
            encoder=encoder or ResNet18(settings.width),
            settings=settings,
            val_loss=val_loss or mean_distance_loss,
            parts=None,
        )

    def fit(self, problem: Problem) -> Fitted:
        settings, pool = problem.choices.settings, problem.pool
        if pool is None:
            raise ValueError(
                "the paper's method trains while it tunes to an unlabeled pool; pass one, or use "
                "method='pretrained', which needs none"
            )
        kept, held = held_out_split(len(problem.train), settings.holdout_share, problem.seed)
        train, held_out = problem.train[kept], problem.train[held]
        check_counts(train, pool)
        restarts = restarts_of(problem, train, pool)
        results = run_all(restarts, problem.jobs, problem.progress)
        candidates = [result.candidate for result in results]
        chosen = choose(candidates)
        best = results[chosen]
        model = AnomalyModel(best.encoder, Likelihood(best.density), problem.image_size)
        if len(held_out):
            normal_scores = model.score_all(held_out).scores
        else:
            normal_scores = cross_fitted_scores(best.Z_trn, seed=problem.seed)
        pool_scores = model.score_features(Features(best.Z_pool)).scores
        warnings = [*about_restarts(candidates, chosen), *about_counts(len(pool), normal_scores)]
        return Fitted(
            model=model,
            normal_scores=normal_scores,
            pool_scores=pool_scores,
            train_index=kept,
            held_out_index=held,
            candidates=candidates,
            chosen=chosen,
            augmentation=restarts[chosen].augmentation,
            warnings=warnings,
            contamination=contamination(pool_scores.numpy(), normal_scores.numpy()),
            normal_conditions=usual(held_out if len(held_out) else problem.train[kept]),
            transient=Transient(best.Z_trn, best.Z_pool),
        )

    def empty_scorer(self, parts: list[Part] | None) -> nn.Module:
        return Likelihood(GaussianDensity())

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
            keeper = Checkpointer(self._path, self._fingerprint, pack_tuner)
            state = self._resumed(keeper, problem)

            def progress(state: TunerState) -> None:
                n_steps = len(state.warm_losses) + len(state.history) + len(state.final_losses)
                keeper.keep(state, n_steps, state.is_over(settings))
                if notify is not None:
                    notify(event(self, state))

            warm_start(problem.perturbed(), state, progress)
            self._share_warm_start(state)
            tune(problem.perturbed(), state, progress)
            train_on(problem, state, progress)
            encoder = detector.trained_encoder(state.theta, state.buffers)
            Z_trn, Z_pool = embed_all(encoder, self.train), embed_all(encoder, self.pool)
            density = GaussianDensity().to(self.device).fit(Z_trn)
            pool_scores = density.score(Z_pool).cpu()
            change = embedding_change(problem, encoder, state.a, Z_trn, self.seed)
        seconds = time.perf_counter() - began
        candidate = PaperCandidate.of(
            self.number, self.augmentation, state, pool_scores, settings, self.initial_a, seconds,
            change,
        )  # fmt: skip
        return PaperResult(candidate, encoder, density, Z_trn, Z_pool)

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
        words = [*words, self.seed, self.number, self.initial_a.tolist(), type(augmentation),
                 augmentation.__dict__, self.encoder, source(augmentation)]  # fmt: skip
        tensors = [self.train, *tensors]
        if not hasattr(self.encoder, "reset_parameters"):  # else they are drawn from the seed
            tensors += self.encoder.state_dict().values()
        return fingerprint(words, tensors)

    def _resumed(self, keeper: Checkpointer[TunerState], problem: TuningProblem) -> TunerState:
        """From this restart's own checkpoint, another's warm start, or the beginning."""
        content = keeper.read()
        if content is None and self.warm_starts is not None:
            content = read_checkpoint(self._warm_path, self._warm_fingerprint())
        state = initial_state(problem, self.initial_a, own_seed(self.seed, self.number))
        if content is None:
            return state
        with intact(self._path or self._warm_path, "delete it to begin that restart again"):
            kept = unpack_tuner(content, problem.detector.device)
            require(same_shapes(kept, state), "it doesn't fit the detector")
        return kept

    @property
    def _warm_path(self) -> Path:
        assert self.warm_starts is not None
        return self.warm_starts / f"{self._warm_fingerprint()}.safetensors"

    def _share_warm_start(self, state: TunerState) -> None:
        if self.warm_starts is None or state.history or self._warm_path.exists():
            return
        write_checkpoint(self._warm_path, self._warm_fingerprint(), pack_tuner(state))


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


def same_shapes(one: TunerState, other: TunerState) -> bool:
    """Whether one state can take the place of another."""

    def shapes(state: TunerState) -> list[tuple[str, torch.Size]]:
        named = (*state.theta.items(), *state.buffers.items(), *state.momentum.items())
        steps = (("a", state.a), ("mean", state.adam[0]), ("square", state.adam[1]))
        return [(name, tensor.shape) for name, tensor in (*named, *steps)]

    return sorted(shapes(one)) == sorted(shapes(other))


def event(restart: PaperRestart, state: TunerState) -> Event:
    settings, kind = restart.settings, type(restart.augmentation).__name__
    if not state.history:
        losses = {"warm start, L_trn": state.warm_losses[-1]}
        n_done, n_most = len(state.warm_losses), settings.warm_start_epochs
        return Event(restart.number, kind, n_done, n_most, losses, {})
    last = state.history[-1]
    if state.final_losses:
        losses = {"at the learned augmentation, L_trn": state.final_losses[-1]}
        n_done, n_most = len(state.final_losses), settings.final_updates
        return Event(restart.number, kind, n_done, n_most, losses, last.learned)
    losses = {"L_trn": last.train_loss, "L_val": last.val_loss}
    n_done = len(state.history)
    return Event(restart.number, kind, n_done, settings.max_iterations, losses, last.learned)


def restarts_of(problem: Problem, train: Tensor, pool: Tensor) -> list[PaperRestart]:
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
