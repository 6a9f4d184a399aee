"""One restart with a frozen encoder: `a` tuned from one initial value, and what it does then."""

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ..augment import Augmentation
from ..encoders.encoding import as_floats, device_of, embed_all
from ..encoders.features import NormalFeatures
from ..parallel.threads import torch_threads
from ..scoring.whitening import Whitening
from ..settings import PretrainedSettings
from ..tuning.checkpoint import Checkpointer, fingerprint, source
from ..tuning.frozen_codec import FrozenCodec
from ..tuning.frozen_tuner import (
    FrozenProblem,
    FrozenRecord,
    FrozenState,
    first_loss,
    initial_frozen_state,
    tune_frozen,
)
from ..tuning.progress import Notify, RestartEvent
from ..tuning.restarts import own_seed
from ..tuning.shift_alignment import aligned_in, alignment, pool_shift, shift_alignment
from ..tuning.val_loss import ValLoss, mean_distance_loss

N_SHIFTED = 96  # training images that are augmented to see what the learned `a` does


@dataclass(frozen=True)
class PretrainedCandidate:
    """What one restart came to."""

    number: int
    augmentation: str  # its type
    initial: dict[str, float]
    learned: dict[str, float]
    a: list[float]
    alignment: float  # J, over all of the pool
    mean_distance: float  # the paper's L_val, without training
    best_iteration: int
    val_loss: float  # around the best state, smoothed
    history: list[FrozenRecord]
    seconds: float


@dataclass(frozen=True)
class LearnedShift:
    """What a learned augmentation does to embeddings, against what the pool does."""

    shift: Tensor  # (d,) of the embeddings, their mean
    alignment: float  # J
    mean_distance: float  # the paper's L_val, without training


@dataclass(frozen=True)
class TuningData:
    """What is tuned on: normal images at the tuning size with their features, and the pool's
    embeddings; coordinates come from these normal images alone."""

    train: Tensor
    normal: NormalFeatures
    Z_val: Tensor
    whitening: Whitening

    @staticmethod
    def of(train: Tensor, normal: NormalFeatures, Z_val: Tensor) -> "TuningData":
        whitening = Whitening.of(normal.pooled, normal.light_changes)
        return TuningData(train, normal, Z_val, whitening)

    def half(self, of_normal: Tensor, of_pool: Tensor) -> "TuningData":
        """As if there were no other images."""
        normal = self.normal.among(of_normal)
        return TuningData.of(self.train[of_normal], normal, self.Z_val[of_pool])


@dataclass(frozen=True)
class FrozenResult:
    """One restart's candidate, and the shift that it makes."""

    candidate: PretrainedCandidate
    shift: LearnedShift


@dataclass(frozen=True)
class FrozenRestart:
    """All that one restart depends on."""

    number: int
    initial_a: Tensor
    augmentation: Augmentation
    encoder: nn.Module
    data: TuningData
    settings: PretrainedSettings
    val_loss: ValLoss
    seed: int
    checkpoints: Path | None

    def run(self, notify: Notify | None = None) -> FrozenResult:
        """Tune `a`, and see what it does to embeddings."""
        began, settings = time.perf_counter(), self.settings
        with torch_threads(settings.threads):
            problem = self._problem()
            keeper = Checkpointer(self._path, self._fingerprint, FrozenCodec())
            state = initial_frozen_state(problem, self.initial_a, own_seed(self.seed, self.number))
            state = keeper.resumed(state, device_of(self.encoder)) or state

            def progress(state: FrozenState) -> None:
                keeper.keep(state, len(state.history), state.is_over(settings))
                if notify is not None:
                    notify(event(self, state))

            tune_frozen(problem, state, progress)
            assert state.best is not None, "tune_frozen keeps a best state"
            shift = self._shift(state.best.a)
        candidate = self._candidate(state, shift, time.perf_counter() - began)
        return FrozenResult(candidate, shift)

    def for_test(self, number: int, data: "TuningData", share: int) -> "FrozenRestart":
        """The same on other data, under another number, with fewer iterations."""
        n_most = max(1, self.settings.max_iterations // share)
        settings = replace(self.settings, max_iterations=n_most)
        return replace(self, number=number, data=data, settings=settings)

    def initial_loss(self) -> float:
        """Of the initial value or its mirror image, whichever is better, before any step."""
        with torch_threads(self.settings.threads):
            problem = self._problem()
            generator = torch.Generator().manual_seed(self.seed)  # the same images in every restart
            return first_loss(problem, self.initial_a, generator)

    def _problem(self) -> FrozenProblem:
        data, loss = self.data, self.val_loss
        if loss is shift_alignment:  # its coordinates are computed once, and leave out the light
            loss = aligned_in(data.whitening)
        return FrozenProblem(
            self.encoder,
            self.augmentation,
            loss,
            data.train,
            data.normal.pooled,
            data.Z_val,
            self.settings,
        )

    def _shift(self, a: Tensor) -> LearnedShift:
        """Augment some training images by the learned `a`, and compare with the pool."""
        data, device = self.data, device_of(self.encoder)
        generator = torch.Generator().manual_seed(self.seed)  # the same positions in every restart
        index = torch.randperm(len(data.train), generator=generator)[:N_SHIFTED]
        noise = self.augmentation.draw(len(index), generator).to(device)
        with torch.no_grad():
            images = self.augmentation(as_floats(data.train[index], device), a, noise)
        Z_aug, Z_trn = embed_all(self.encoder, images), data.normal.pooled
        shift = (Z_aug.double() - Z_trn[index].double()).mean(dim=0)
        of_pool = pool_shift(data.whitening(Z_trn), data.whitening(data.Z_val))
        return LearnedShift(
            shift=shift,
            alignment=float(alignment(data.whitening.shift(shift), of_pool)),
            mean_distance=float(mean_distance_loss(Z_trn, Z_aug, data.Z_val)),
        )

    def _candidate(
        self, state: FrozenState, shift: LearnedShift, seconds: float
    ) -> PretrainedCandidate:
        best = state.best
        assert best is not None
        return PretrainedCandidate(
            number=self.number,
            augmentation=type(self.augmentation).__name__,
            initial=self.augmentation.describe(self.initial_a),
            learned=self.augmentation.describe(best.a),
            a=best.a.tolist(),
            alignment=shift.alignment,
            mean_distance=shift.mean_distance,
            best_iteration=best.iteration,
            val_loss=best.loss,
            history=state.history,
            seconds=seconds,
        )

    @property
    def _path(self) -> Path | None:
        folder = self.checkpoints
        return folder and folder / f"restart-{self.number + 1}.safetensors"

    def _fingerprint(self) -> str:
        """Differs where the result would."""
        loss = getattr(self.val_loss, "__qualname__", self.val_loss)
        augmentation = self.augmentation
        words = [
            asdict(self.settings),
            loss,
            self.seed,
            self.number,
            self.initial_a.tolist(),
            type(augmentation),
            augmentation.__dict__,
            self.encoder,
            source(augmentation),
        ]
        data = self.data
        return fingerprint(words, [data.train, data.normal.pooled, data.Z_val])


def event(restart: FrozenRestart, state: FrozenState) -> RestartEvent:
    last, n_most = state.history[-1], restart.settings.max_iterations
    kind, losses = type(restart.augmentation).__name__, {"loss": last.val_loss}
    return RestartEvent(restart.number, kind, len(state.history), n_most, losses, last.learned)
