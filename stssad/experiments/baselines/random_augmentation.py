"""RS and RD: the same detector, its augmentation drawn at random instead of tuned (Sec. 5).

RS draws `a` once, before training; RD draws it again at every epoch. Either makes as many updates
of θ as one restart of ST-SSAD may.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...augment import Augmentation
from ...encoders.detector import Detector
from ...encoders.encoding import embed_all
from ...encoders.resnet import ResNet18
from ...parallel.threads import torch_threads
from ...scoring.gaussian import GaussianDensity
from ...settings import Settings
from ...tuning.problem import TuningProblem
from ...tuning.tuner import initial_state, most_updates, train_epoch
from ...tuning.val_loss import mean_distance_loss


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
        nothing = train[:0]  # there is no pool, and no validation loss is computed
        problem = TuningProblem(
            detector, self.augmentation, mean_distance_loss, train, nothing, settings
        )
        state = initial_state(problem, torch.zeros(len(self.augmentation.names)), self.seed)
        n_updates = most_updates(settings, len(train))
        drawn: list[Tensor] = []
        while state.n_updates < n_updates:
            if self.dynamic or not drawn:
                state.a = self.augmentation.random_value(state.generator).to(detector.device)
                drawn.append(state.a)
            train_epoch(problem, state, most=n_updates - state.n_updates)
        self.learned_ = {} if self.dynamic else self.augmentation.describe(drawn[0].cpu())
        self.encoder_ = detector.trained_encoder(state.theta, state.buffers)
        self.density_ = GaussianDensity().fit(embed_all(self.encoder_, train))

    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]:
        scores: npt.NDArray[np.float64] = self.density_.score(
            embed_all(self.encoder_, images)
        ).numpy()
        return scores
