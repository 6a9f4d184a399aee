"""D-SVDD: Deep One-Class Classification (Ruff et al., ICML 2018), the one-class objective.

A network without biases is pre-trained as the encoder of an autoencoder; the centre c is the mean
of its embeddings; then it is trained to bring them near c, and the score is the squared distance
to c. Network, contrast normalisation, step sizes and epochs are those of its authors for CIFAR-10.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ...encoders.encoding import as_floats, chunk_size
from ...parallel.threads import torch_threads
from ...settings import Settings

WEIGHT_DECAY = 5e-7
BATCH_SIZE, EMBEDDING_DIM = 200, 128
AWAY_FROM_ZERO = 0.1  # of each coordinate of c: a bias-free network reaches 0 trivially


def normalisation(n: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(n, eps=1e-4, affine=False)


def encoder(image_size: int, width: int, embedding_dim: int) -> nn.Sequential:
    """5x5 convolutions of width/2, width and 2*width channels, each halving the image."""
    layers: list[nn.Module] = []
    for n_in, n_out in ((3, width // 2), (width // 2, width), (width, 2 * width)):
        layers += [nn.Conv2d(n_in, n_out, 5, padding=2, bias=False), normalisation(n_out)]
        layers += [nn.LeakyReLU(), nn.MaxPool2d(2)]
    n_features = 2 * width * (image_size // 8) ** 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(n_features, embedding_dim, bias=False))


def decoder(image_size: int, width: int, embedding_dim: int) -> nn.Sequential:
    """The mirror image, for pre-training only."""
    side = image_size // 8
    layers: list[nn.Module] = [
        nn.Linear(embedding_dim, 2 * width * side * side, bias=False),
        nn.Unflatten(1, (2 * width, side, side)),
    ]
    for n_in, n_out in ((2 * width, width), (width, width // 2), (width // 2, 3)):
        layers += [normalisation(n_in), nn.LeakyReLU(), nn.Upsample(scale_factor=2)]
        layers.append(nn.ConvTranspose2d(n_in, n_out, 5, padding=2, bias=False))
    return nn.Sequential(*layers)


def contrast_normalised(images: Tensor) -> Tensor:
    """Each image with mean 0 and mean absolute value 1."""
    centered = images - images.mean(dim=(1, 2, 3), keepdim=True)
    return centered / centered.abs().mean(dim=(1, 2, 3), keepdim=True).clamp_min(1e-8)


class DeepSVDD:
    """Trained on the normal images alone."""

    def __init__(
        self,
        settings: Settings | None = None,
        seed: int = 0,
        pretrain_epochs: int = 350,
        epochs: int = 150,
        step_size: float = 1e-4,
        device: str = "cpu",
    ) -> None:
        self.settings, self.seed = settings, seed
        self.pretrain_epochs, self.epochs = pretrain_epochs, epochs
        self.step_size, self.device = step_size, torch.device(device)

    def fit(self, train: Tensor, unlabeled: Tensor | None = None) -> "DeepSVDD":
        settings = self.settings or Settings.quick()
        shape = (train.shape[-1], settings.width, EMBEDDING_DIM)
        images = contrast_normalised(as_floats(train, self.device))
        self.low_, self.high_ = images.min(), images.max()
        images = self._scaled(images)
        with torch_threads(settings.threads), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.network_ = encoder(*shape).to(self.device)
            self._pretrain(images, decoder(*shape).to(self.device))
            self.center_ = self._center(images)
            self._descend(
                self.network_,
                images,
                self.epochs,
                lower_after=50,
                loss=lambda batch: (self.network_(batch) - self.center_).square().sum(1).mean(),
            )
        self.network_.eval()
        return self

    def _scaled(self, normalised: Tensor) -> Tensor:
        return (normalised - self.low_) / (self.high_ - self.low_)

    def _pretrain(self, images: Tensor, back: nn.Module) -> None:
        both = nn.Sequential(self.network_, back)

        def loss(batch: Tensor) -> Tensor:
            return (torch.sigmoid(both(batch)) - batch).square().sum(dim=(1, 2, 3)).mean()

        self._descend(both, images, self.pretrain_epochs, lower_after=250, loss=loss)

    def _center(self, images: Tensor) -> Tensor:
        """The mean embedding, each coordinate at least 0.1 away from zero."""
        c = self._embed(images).mean(dim=0)
        moved = AWAY_FROM_ZERO * torch.where(c < 0, -1.0, 1.0)
        return torch.where(c.abs() < AWAY_FROM_ZERO, moved, c)

    def _descend(
        self,
        network: nn.Module,
        images: Tensor,
        epochs: int,
        lower_after: int,
        loss: Callable[[Tensor], Tensor],
    ) -> None:
        """Adam, at a tenth of the step size after so many epochs."""
        optimizer = torch.optim.Adam(
            network.parameters(), self.step_size, weight_decay=WEIGHT_DECAY
        )
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [lower_after])
        generator = torch.Generator().manual_seed(self.seed)
        network.train()
        for _ in range(epochs):
            for index in torch.split(torch.randperm(len(images), generator=generator), BATCH_SIZE):
                if len(index) == 1 < len(images):  # batch normalisation needs company
                    continue
                optimizer.zero_grad()
                torch.autograd.backward(loss(images[index]))
                optimizer.step()
            schedule.step()

    @torch.no_grad()
    def _embed(self, images: Tensor) -> Tensor:
        self.network_.eval()
        chunks = torch.split(images, chunk_size(images.shape[-1]))
        return torch.cat([self.network_(c) for c in chunks])

    def decision_function(self, images: Tensor) -> npt.NDArray[np.float64]:
        normalised = self._scaled(contrast_normalised(as_floats(images, self.device)))
        distances = (self._embed(normalised) - self.center_).square().sum(1)
        scores: npt.NDArray[np.float64] = distances.cpu().double().numpy()
        return scores
