"""A plain multi-layer perceptron, whose cost grows in step with its layers (Sec. 5.5)."""

from itertools import pairwise

from torch import Tensor, nn

from .batchnorm import BatchNorm1d
from .encoder import imagenet_normalization


class MLP(nn.Module):
    """`n_layers` linear layers of `width` units on the flattened image; embeds into `width`."""

    trainable = True

    def __init__(self, image_size: int, n_layers: int = 8, width: int = 128) -> None:
        super().__init__()
        self.image_size, self.n_layers, self.width = image_size, n_layers, width
        self.embedding_dim = width
        self.normalization = imagenet_normalization()
        sizes = [3 * image_size**2] + [width] * n_layers
        layers: list[nn.Module] = [nn.Flatten()]
        for n_in, n_out in pairwise(sizes):
            layers += [nn.Linear(n_in, n_out, bias=False), BatchNorm1d(n_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])  # the embedding itself is not rectified
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for module in self.layers:
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm1d):
                module.reset_parameters()

    def config(self) -> dict[str, int]:
        """What the constructor needs to build this encoder again."""
        return {"image_size": self.image_size, "n_layers": self.n_layers, "width": self.width}

    def features(self, images: Tensor) -> list[Tensor]:
        """A map of a single position: it doesn't tell what is where."""
        return [self.layers(self.normalization(images))[:, :, None, None]]

    def pooled(self, maps: list[Tensor]) -> Tensor:
        return maps[0].flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        return self.pooled(self.features(images))
