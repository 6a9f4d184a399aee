"""One restart with a frozen encoder: `a` tuned from one initial value, and what it does then."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ..augment import Augmentation
from ..encoders.encoding import as_floats, device_of, embed_all
from ..scoring.gaussian import GaussianDensity, score_variance
from ..scoring.whitening import Whitening
from ..settings import PretrainedSettings
from ..storage import intact, require
from ..threads import torch_threads
from ..tuning.checkpoint import Checkpointer, fingerprint, pack_frozen, source, unpack_frozen
from ..tuning.frozen_tuner import (
    FrozenProblem,
    FrozenRecord,
    FrozenState,
    initial_frozen_state,
    tune_frozen,
)
from ..tuning.restarts import Event, Notify, own_seed
from ..tuning.shift_alignment import alignment
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
    score_variance: float
    pool_scores: list[float]
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

    def weight(self, dimension: float) -> float:
        """How much more squares along the shift count.

        Of d directions, an average one has 1/d of the anomalies' energy; the shift has J². So
        squares along it get J²d more (docs/beyond-the-paper.md).
        """
        return max(0.0, self.alignment) ** 2 * dimension


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
    train: Tensor
    Z_trn: Tensor
    Z_val: Tensor
    settings: PretrainedSettings
    val_loss: ValLoss
    seed: int
    dimension: float
    checkpoints: Path | None

    def run(self, notify: Notify | None = None) -> FrozenResult:
        """Tune `a`, and see what it does to embeddings."""
        began, settings = time.perf_counter(), self.settings
        with torch_threads(settings.threads):
            problem = FrozenProblem(
                self.encoder, self.augmentation, self.val_loss, self.train, self.Z_trn, self.Z_val,
                settings,
            )  # fmt: skip
            keeper = Checkpointer(self._path, self._fingerprint, pack_frozen)
            state = initial_frozen_state(problem, self.initial_a, own_seed(self.seed, self.number))
            if (content := keeper.read()) is not None:
                assert self._path is not None
                with intact(self._path, "delete it to begin that restart again"):
                    kept = unpack_frozen(content, device_of(self.encoder))
                    require(kept.a.shape == state.a.shape, "it doesn't fit the augmentation")
                state = kept

            def progress(state: FrozenState) -> None:
                keeper.keep(state, len(state.history), state.is_over(settings))
                if notify is not None:
                    notify(event(self, state))

            tune_frozen(problem, state, progress)
            assert state.best is not None, "tune_frozen keeps a best state"
            density = GaussianDensity().fit(self.Z_trn)
            shift = self._shift(state.best.a, density)
            weighted = GaussianDensity(shift.shift, shift.weight(self.dimension)).fit(self.Z_trn)
            pool_scores = weighted.score(self.Z_val)
        candidate = self._candidate(state, shift, pool_scores, time.perf_counter() - began)
        return FrozenResult(candidate, shift)

    def _shift(self, a: Tensor, density: GaussianDensity) -> LearnedShift:
        """Augment some training images by the learned `a`, and compare with the pool."""
        generator = torch.Generator().manual_seed(self.seed)  # the same positions in every restart
        index = torch.randperm(len(self.train), generator=generator)[:N_SHIFTED]
        device = device_of(self.encoder)
        noise = self.augmentation.draw(len(index), generator).to(device)
        with torch.no_grad():
            images = self.augmentation(as_floats(self.train[index], device), a, noise)
        Z_aug = embed_all(self.encoder, images)
        shift = (Z_aug.double() - self.Z_trn[index].double()).mean(dim=0)
        assert density.mean is not None and density.cholesky is not None
        whitening = Whitening(density.mean, density.cholesky)
        of_pool = self.Z_val.double().mean(dim=0) - whitening.mean
        return LearnedShift(
            shift=shift,
            alignment=float(alignment(whitening.shift(shift), whitening.shift(of_pool))),
            mean_distance=float(mean_distance_loss(self.Z_trn, Z_aug, self.Z_val)),
        )

    def _candidate(
        self, state: FrozenState, shift: LearnedShift, pool_scores: Tensor, seconds: float
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
            score_variance=score_variance(pool_scores),
            pool_scores=pool_scores.tolist(),
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
        words = [asdict(self.settings), loss, self.seed, self.number, self.initial_a.tolist(),
                 type(augmentation), augmentation.__dict__, self.encoder,
                 source(augmentation)]  # fmt: skip
        return fingerprint(words, [self.train, self.Z_trn, self.Z_val])


def event(restart: FrozenRestart, state: FrozenState) -> Event:
    last, n_most = state.history[-1], restart.settings.max_iterations
    kind, losses = type(restart.augmentation).__name__, {"loss": last.val_loss}
    return Event(restart.number, kind, len(state.history), n_most, losses, last.learned)
