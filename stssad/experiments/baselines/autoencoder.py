"""AE: a convolutional autoencoder, the score is the reconstruction error.

The network and its training follow the autoencoder of Golan and El-Yaniv, "Deep Anomaly Detection
Using Geometric Transformations" (2018), which the paper cites for this baseline: 3x3 convolutions
of stride 2 that double the channels, a tanh code of 256, Adam at 1e-3, 250 epochs, batches of 128.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ...encoders.encoding import as_floats, chunk_size
from ...parallel.threads import torch_threads
from ...settings import Settings

SMALLEST_MAP = 4


class AutoEncoderNetwork(nn.Module):
    """Images in [0, 1] to images in [0, 1], through a code."""

    def __init__(self, image_size: int, width: int, code: int) -> None:
        super().__init__()
        channels, side = [3], image_size
        while side > SMALLEST_MAP and side % 2 == 0:
            channels.append(width if len(channels) == 1 else 2 * channels[-1])
            side //= 2
        shape = (channels[-1], side, side)
        down: list[nn.Module] = []
        for n_in, n_out in pairwise(channels):
            down += [nn.Conv2d(n_in, n_out, 3, 2, 1), nn.BatchNorm2d(n_out), nn.LeakyReLU(0.2)]
        n_features = channels[-1] * side * side
        self.encode = nn.Sequential(*down, nn.Flatten(), nn.Linear(n_features, code), nn.Tanh())
        up: list[nn.Module] = [nn.Linear(code, n_features), nn.Unflatten(1, shape)]
        for n_in, n_out in zip(channels[:0:-1], channels[-2::-1], strict=True):
            up += [nn.BatchNorm2d(n_in), nn.LeakyReLU(0.2)]
            up.append(nn.ConvTranspose2d(n_in, n_out, 3, 2, 1, output_padding=1))
        self.decode = nn.Sequential(*up, nn.Sigmoid())

    def forward(self, images: Tensor) -> Tensor:
        return self.decode(self.encode(images))  # type: ignore[no-any-return]


class AutoEncoder:
    """Trained on the normal images alone."""

    def __init__(
        self,
        settings: Settings | None = None,
        seed: int = 0,
        epochs: int = 250,
        step_size: float = 1e-3,
        batch_size: int = 128,
        code: int = 256,
        device: str = "cpu",
    ) -> None:
        self.settings, self.seed, self.epochs = settings, seed, epochs
        self.step_size, self.batch_size, self.code = step_size, batch_size, code
        self.device = torch.device(device)

    def fit(self, train: Tensor, unlabeled: Tensor | None = None) -> "AutoEncoder":
        settings = self.settings or Settings.quick()
        with torch_threads(settings.threads), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = AutoEncoderNetwork(train.shape[-1], settings.width, self.code)
            self.network_ = network.to(self.device)
            self._train(as_floats(train, self.device))
        return self

    def _train(self, train: Tensor) -> None:
        optimizer = torch.optim.Adam(self.network_.parameters(), self.step_size)
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.epochs):
            order = torch.randperm(len(train), generator=generator)
            for index in torch.split(order, self.batch_size):
                if len(index) == 1 < len(train):  # batch normalisation needs company
                    continue
                optimizer.zero_grad()
                batch = train[index]
                torch.autograd.backward(nn.functional.mse_loss(self.network_(batch), batch))
                optimizer.step()
        self.network_.eval()

    @torch.no_grad()
    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]:
        errors = []
        for chunk in torch.split(images, chunk_size(images.shape[-1])):
            batch = as_floats(chunk, self.device)
            errors.append((self.network_(batch) - batch).square().flatten(1).mean(1))
        return torch.cat(errors).cpu().double().numpy()
