"""RS and RD: the same detector, its augmentation drawn at random instead of tuned (Sec. 5).

RS draws `a` once, before training; RD draws it again at every epoch. Either makes as many updates
of θ as one start of ST-SSAD may.
"""

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..augment import Augmentation
from ..detector import Detector
from ..encoders import ResNet18
from ..scoring import GaussianDensity
from ..settings import Settings
from ..threads import torch_threads
from ..tuner import draw_train_batch, initial_state, random_index, step_size, train_step


class RandomAugmentation:
    """dynamic: RD, else RS."""

    def __init__(
        self,
        augmentation: Augmentation,
        dynamic: bool,
        settings: Settings | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.augmentation, self.dynamic = augmentation, dynamic
        self.settings, self.seed, self.device = settings, seed, device

    def fit(self, train: Tensor, unlabeled: Tensor | None = None) -> "RandomAugmentation":
        settings = self.settings or Settings.quick()
        with torch_threads(settings.threads):
            detector = Detector(ResNet18(settings.width), train.shape[-1], self.device)
            self._train(detector, train, settings)
        return self

    def _train(self, detector: Detector, train: Tensor, settings: Settings) -> None:
        state = initial_state(detector, torch.zeros(len(self.augmentation.names)), self.seed)
        per_epoch = math.ceil(len(train) / settings.batch_size)
        n_updates = (
            settings.warm_start_epochs * per_epoch
            + settings.max_iterations * settings.theta_updates
        )
        drawn: list[Tensor] = []
        while state.n_updates < n_updates:
            if self.dynamic or not drawn:
                state.a = self.augmentation.random_value(state.generator).to(detector.device)
                drawn.append(state.a)
            order = random_index(len(train), None, state.generator)
            for index in torch.split(order, settings.batch_size)[: n_updates - state.n_updates]:
                batch = draw_train_batch(train, index, self.augmentation, settings, state, detector)
                alpha = step_size(settings, len(train), state.n_updates)
                train_step(detector, state, batch, self.augmentation, settings, alpha)
        self.learned_ = {} if self.dynamic else self.augmentation.describe(drawn[0].cpu())
        self.frozen_ = detector.frozen(state.theta, state.buffers)
        self.density_ = GaussianDensity().fit(self.frozen_.embed_all(train))

    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]:
        scores: npt.NDArray[np.float64] = self.density_.score(
            self.frozen_.embed_all(images)
        ).numpy()
        return scores
