"""What Algorithm 1 works on from one initial `a`, and what it draws from it."""

from dataclasses import dataclass, replace

from torch import Generator, Tensor

from ..augment import Augmentation
from ..augment.perturbed import Perturbed
from ..encoders.detector import Detector, Tensors
from ..encoders.encoding import as_floats
from ..settings import Settings
from .descent import in_turn, random_index
from .val_loss import ValLoss


@dataclass(frozen=True)
class TuningProblem:
    """Detector, augmentation, loss and data; `train` and `pool` are images, uint8 or float."""

    detector: Detector
    augmentation: Augmentation
    val_loss: ValLoss
    train: Tensor
    pool: Tensor
    settings: Settings

    def floats(self, images: Tensor) -> Tensor:
        """As the detector takes them."""
        return as_floats(images, self.detector.device)

    def perturbed(self) -> "TuningProblem":
        """The problem while `a` is tuned: with noise around it, if the settings want some."""
        if not self.settings.a_noise:
            return self
        return replace(self, augmentation=Perturbed(self.augmentation, self.settings.a_noise))

    def augment(self, sources: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        return self.augmentation(self.floats(sources), a, noise)


@dataclass(frozen=True)
class TrainBatch:
    """The mini-batch of L_trn: normal images, and those to be augmented with their noise."""

    normal: Tensor
    sources: Tensor
    noise: Tensor


@dataclass(frozen=True)
class ValSample:
    """What L_val sees: training images, those to be augmented with their noise, the pool.

    Images as they are stored, uint8 or float: a chunk at a time is made float, on the device.
    """

    train: Tensor
    sources: Tensor
    noise: Tensor
    pool: Tensor

    def __len__(self) -> int:
        return len(self.train) + len(self.sources) + len(self.pool)


@dataclass(frozen=True)
class ThetaStep:
    """One update of θ on a mini-batch, at step size alpha: where it began, where it led."""

    theta: Tensors
    theta_next: Tensors
    buffers_next: Tensors  # BatchNorm's running statistics after the step
    batch: TrainBatch
    alpha: float
    loss: float  # L_trn before it


def draw_train_batch(problem: TuningProblem, index: Tensor, generator: Generator) -> TrainBatch:
    """Normal images train[index], and γ augmented ones for each, made of the same, in turn."""
    n_augmented = max(1, round(problem.settings.augmented_ratio * len(index)))
    normal = problem.floats(problem.train[index])
    sources = problem.floats(problem.train[in_turn(index, n_augmented)])
    noise = problem.augmentation.draw(n_augmented, generator).to(normal.device, normal.dtype)
    return TrainBatch(normal, sources, noise)


def draw_sample(problem: TuningProblem, generator: Generator) -> ValSample:
    """What L_val is computed on: fresh samples in every iteration."""
    settings, train, pool = problem.settings, problem.train, problem.pool
    index = random_index(len(train), settings.val_train_samples, generator)
    n_augmented = settings.val_augmented_samples
    sources = train[in_turn(index, n_augmented)]
    noise = problem.augmentation.draw(n_augmented, generator).to(problem.detector.device)
    of_pool: Tensor | slice = slice(None)
    if settings.val_pool_samples is not None and settings.val_pool_samples < len(pool):
        of_pool = random_index(len(pool), settings.val_pool_samples, generator)
    return ValSample(train[index], sources, noise, pool[of_pool])
