"""One start of Algorithm 1 from beginning to end, and several of them, one by one or at once."""

import hashlib
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .alignment import Whitening, alignment
from .augment import Augmentation
from .checkpoint import read_checkpoint, write_checkpoint
from .detector import Detector, FrozenEncoder, as_floats
from .scoring import GaussianDensity, score_variance
from .settings import Settings
from .threads import torch_threads
from .tuner import (
    Best,
    Record,
    TunerState,
    has_settled,
    initial_state,
    tune,
    warm_start,
)
from .val_loss import ValLoss, mean_distance_loss
from .version import __version__


@dataclass(frozen=True)
class Job:
    """All that a start depends on: the same job gives the same result in any process."""

    start: int
    initial_a: Tensor
    augmentation: Augmentation
    encoder: nn.Module
    train: Tensor
    pool: Tensor
    settings: Settings
    val_loss: ValLoss
    seed: int
    device: str
    embedded: tuple[Tensor, Tensor] | None = None  # (Z_trn, Z_val), where the encoder stays
    dimension: float = 0.0  # there: over how many directions unseen normal pictures spread
    checkpoints: Path | None = None  # a folder where the start keeps its state as it goes
    warm_starts: Path | None = None  # a folder of warm starts that other jobs may share

    @property
    def fingerprint(self) -> str:
        """Differs where the result would."""
        loss = getattr(self.val_loss, "__qualname__", self.val_loss)
        return self._digest([asdict(self.settings), loss], [self.pool])

    @property
    def warm_fingerprint(self) -> str:
        """Differs where the warm start would, which sees neither the pool nor L_val."""
        settings = {k: v for k, v in asdict(self.settings).items() if k not in AFTER_WARM_START}
        return self._digest([settings], [])

    def _digest(self, words: list[object], tensors: list[Tensor]) -> str:
        digest = hashlib.sha256()
        words = [*words, self.seed, self.start, self.initial_a.tolist(), type(self.augmentation)]
        for text in (*words, self.augmentation.__dict__, self.encoder, source(self.augmentation)):
            digest.update(str(text).encode())
        tensors = [self.train, *tensors]
        if not hasattr(self.encoder, "reset_parameters"):  # else they are drawn from the seed
            tensors += self.encoder.state_dict().values()
        for tensor in tensors:
            digest.update(tensor.detach().cpu().numpy().tobytes())
        return digest.hexdigest()

    @property
    def own_seed(self) -> int:
        """A seed for this start alone, whatever runs beside it."""
        return int(np.random.SeedSequence([self.seed, self.start]).generate_state(1)[0])


def source(part: object) -> str:
    """The code of a part's class, and our version: results of other code are other results."""
    try:
        code = inspect.getsource(type(part))
    except (OSError, TypeError):  # made where there is no file
        code = ""
    return f"{__version__} {code}"


@dataclass(frozen=True)
class Event:
    """What a start has just done, for whoever shows progress."""

    start: int
    family: str
    n_done: int  # warm-start epochs, or iterations
    n_most: int
    train_loss: float
    record: Record | None  # None during the warm start


@dataclass(frozen=True)
class Imitation:
    """What a learned augmentation does to embeddings, against what the pool does."""

    shift: Tensor  # (d,) of the embeddings, their mean
    alignment: float  # J
    mean_distance: float  # the paper's L_val, without training


@dataclass(frozen=True)
class Finished:
    """One start's result; θ is that of its best state."""

    start: int
    initial_a: Tensor
    best: Best
    warm_losses: list[float]
    history: list[Record]
    density: GaussianDensity
    Z_trn: Tensor
    pool_scores: Tensor
    seconds: float
    imitation: Imitation | None = None  # where the encoder stays as it is

    @property
    def score_variance(self) -> float:
        return score_variance(self.pool_scores)


Notify = Callable[[Event], None]
N_IMITATED = 96  # training pictures that are augmented to see what the learned `a` does
# Settings that a warm start doesn't feel. max_iterations it does: α's schedule ends with them.
AFTER_WARM_START = (
    "holdout_share", "a_step_size", "hypergradient", "val_train_samples", "val_augmented_samples",
    "val_pool_samples", "chunk_size", "smoothing", "patience",
)  # fmt: skip
CHECKPOINT_EVERY = 5  # warm-start epochs, or iterations


def run_start(job: Job, notify: Notify | None = None) -> Finished:
    """Warm start, Algorithm 1, and the score variance of its best state on the pool."""
    began = time.perf_counter()
    settings = job.settings
    with torch_threads(settings.threads):
        detector = Detector(job.encoder, job.train.shape[-1], job.device)
        keeper = Keeper(job, notify)
        progress = keeper.advance
        initial = initial_state(detector, job.initial_a, job.own_seed, settings.is_frozen)
        state = keeper.kept(initial) or shared_warm_start(job, initial) or initial
        warm_start(detector, job.augmentation, job.train, state, settings, progress)
        share_warm_start(job, state)
        tune(
            detector, job.augmentation, job.train, job.pool, state, settings, job.val_loss,
            progress, job.embedded,
        )  # fmt: skip
        assert state.best is not None, "tune keeps a best state"
        frozen = detector.frozen(state.best.theta, state.best.buffers)
        Z_trn, Z_val = job.embedded or (frozen.embed_all(job.train), frozen.embed_all(job.pool))
        density = GaussianDensity().fit(Z_trn)
        imitation = None
        if settings.is_frozen:
            imitation = imitate(job, frozen, state.best.a, Z_trn, Z_val)
            density = stretched(density, imitation, job.dimension)
        pool_scores = density.score(Z_val)
    return Finished(
        start=job.start,
        initial_a=job.initial_a,
        best=state.best,
        warm_losses=state.warm_losses,
        history=state.history,
        density=density,
        Z_trn=Z_trn,
        pool_scores=pool_scores,
        seconds=time.perf_counter() - began,
        imitation=imitation,
    )


def imitate(job: Job, frozen: FrozenEncoder, a: Tensor, Z_trn: Tensor, Z_val: Tensor) -> Imitation:
    """Augment some training pictures by the learned `a`, and compare with the pool."""
    generator = torch.Generator().manual_seed(job.seed)  # the same places for every start
    index = torch.randperm(len(job.train), generator=generator)[:N_IMITATED]
    noise = job.augmentation.draw(len(index), generator).to(frozen.device)
    with torch.no_grad():
        pictures = job.augmentation(as_floats(job.train[index], frozen.device), a, noise)
    Z_aug = frozen.embed_all(pictures)
    shift = (Z_aug.double() - Z_trn[index].double()).mean(dim=0)
    whitening = Whitening.of(Z_trn)
    of_pool = Z_val.double().mean(dim=0) - whitening.mean
    return Imitation(
        shift=shift,
        alignment=float(alignment(whitening.shift(shift), whitening.shift(of_pool))),
        mean_distance=float(mean_distance_loss(Z_trn, Z_aug, Z_val)),
    )


def stretched(density: GaussianDensity, imitation: Imitation, d: float) -> GaussianDensity:
    """The density with its distances stretched along the shift as far as the alignment goes.

    Of d directions, an average one has 1/d of the anomalies' energy; the shift has J². So squares
    along it get J²d more (docs/beyond-the-paper.md).
    """
    stretch = max(0.0, imitation.alignment) ** 2 * d
    return replace(density, shift=imitation.shift, stretch=stretch)


def shared_warm_start(job: Job, initial: TunerState) -> TunerState | None:
    """The state after a warm start like this one, if another job has left it."""
    if job.warm_starts is None or job.settings.is_frozen:
        return None
    name = job.warm_fingerprint
    return read_checkpoint(job.warm_starts / f"{name}.safetensors", name, initial)


def share_warm_start(job: Job, state: TunerState) -> None:
    if job.warm_starts is not None and not state.history and not job.settings.is_frozen:
        path = job.warm_starts / f"{job.warm_fingerprint}.safetensors"
        if not path.exists():
            write_checkpoint(path, state, job.warm_fingerprint, with_theta=True)


class Keeper:
    """Tells of a start's progress, and keeps its state every few steps and at its end."""

    def __init__(self, job: Job, notify: Notify | None) -> None:
        self.job, self.notify = job, notify
        self.path = job.checkpoints and job.checkpoints / f"start-{job.start + 1}.safetensors"
        self.fingerprint = job.fingerprint if self.path else ""

    def kept(self, initial: TunerState) -> TunerState | None:
        """The state to go on from, if one was kept."""
        if self.path is None:
            return None
        return read_checkpoint(self.path, self.fingerprint, initial)

    def advance(self, state: TunerState) -> None:
        settings = self.job.settings
        n_steps = len(state.warm_losses) + len(state.history)
        ended = len(state.history) == settings.max_iterations or has_settled(state, settings)
        if self.path is not None and (n_steps % CHECKPOINT_EVERY == 0 or ended):
            write_checkpoint(self.path, state, self.fingerprint, not settings.is_frozen)
        if self.notify is not None:
            self.notify(event(self.job, state))


def event(job: Job, state: TunerState) -> Event:
    family, settings = type(job.augmentation).__name__, job.settings
    if not state.history:
        n_done, last = len(state.warm_losses), state.warm_losses[-1]
        return Event(job.start, family, n_done, settings.warm_start_epochs, last, None)
    record = state.history[-1]
    n_done, most = len(state.history), settings.max_iterations
    return Event(job.start, family, n_done, most, record.train_loss, record)


def run_starts(jobs: list[Job], n_processes: int, notify: Notify | None = None) -> list[Finished]:
    """All starts, in order; the result doesn't depend on the number of processes."""
    if n_processes == 1 or len(jobs) == 1:
        return [run_start(job, notify) for job in jobs]
    return _run_parallel(jobs, min(n_processes, len(jobs)), notify)


def _run_parallel(jobs: list[Job], n_processes: int, notify: Notify | None) -> list[Finished]:
    """In processes of joblib's, which don't run the user's script again as plain spawning does."""
    from joblib import Parallel, delayed

    with _mailbox(notify) as mailbox:
        parallel = Parallel(n_jobs=n_processes, max_nbytes=None)
        return list(parallel(delayed(_run_and_post)(job, *mailbox) for job in jobs))


def _run_and_post(job: Job, address: str, key: bytes) -> Finished:
    with Client(address, authkey=key) as connection:
        return run_start(job, connection.send)


@contextmanager
def _mailbox(notify: Notify | None) -> Iterator[tuple[str, bytes]]:
    """An address where other processes can send events, which are handed to `notify` here."""
    key, closing = os.urandom(16), threading.Event()
    with Listener(authkey=key) as listener:
        address = str(listener.address)
        door = threading.Thread(target=_receive_all, args=(listener, closing, notify), daemon=True)
        door.start()
        try:
            yield address, key
        finally:
            closing.set()
            # A knock, so that the door looks up. Aside: it may have been another's that it heard.
            threading.Thread(target=_knock, args=(address, key), daemon=True).start()
            door.join()


def _knock(address: str, key: bytes) -> None:
    with suppress(OSError, EOFError), Client(address, authkey=key) as connection:
        connection.send(None)


def _receive_all(listener: Listener, closing: threading.Event, notify: Notify | None) -> None:
    """Serve one connection after another, several at once, until the knock after closing."""
    lock, knocked = threading.Lock(), threading.Event()
    serving: list[threading.Thread] = []

    def receive(connection: Connection) -> None:
        with connection, suppress(EOFError):
            while (event := connection.recv()) is not None:
                with lock:
                    if notify is not None:
                        notify(event)
            knocked.set()

    while not knocked.is_set():
        serving.append(threading.Thread(target=receive, args=(listener.accept(),), daemon=True))
        serving[-1].start()
        if closing.is_set():  # was that the knock? It is, or ends, before long
            serving[-1].join(timeout=10)
    for thread in serving:
        thread.join(timeout=1)  # what was sent is still heard
