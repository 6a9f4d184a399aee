"""ResNet-18 (He et al., 2016) without its classifier, in torchvision's shapes, from scratch.

Written with plain modules, since the detector needs nothing else of torchvision.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from .batchnorm import BatchNorm2d
from .encoder import imagenet_normalization


def convolution(n_in: int, n_out: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, projected where the shape changes."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(n_in, n_out, 3, stride), BatchNorm2d(n_out)
        self.conv2, self.bn2 = convolution(n_out, n_out, 3, 1), BatchNorm2d(n_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.shortcut = nn.Sequential(convolution(n_in, n_out, 1, stride), BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Embeddings of 8 * width dimensions; width 64, the original, gives the paper's 512."""

    trainable = True

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.width = width
        self.embedding_dim = 8 * width
        self.normalization = imagenet_normalization()
        self.stem = nn.Sequential(  # ReLU after pooling: the same numbers, on a quarter of them
            convolution(3, width, 7, 2), BatchNorm2d(width), nn.MaxPool2d(3, 2, 1), nn.ReLU()
        )
        self.layers = nn.Sequential(
            Block(width, width, 1),
            Block(width, width, 1),
            Block(width, 2 * width, 2),
            Block(2 * width, 2 * width, 1),
            Block(2 * width, 4 * width, 2),
            Block(4 * width, 4 * width, 1),
            Block(4 * width, 8 * width, 2),
            Block(8 * width, 8 * width, 1),
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()

    def config(self) -> dict[str, int]:
        """What the constructor needs to build this encoder again."""
        return {"width": self.width}

    def features(self, images: Tensor) -> list[Tensor]:
        """The last map, at 1/32 of the image's side."""
        return [self.layers(self.stem(self.normalization(images)))]

    def pooled(self, maps: list[Tensor]) -> Tensor:
        return maps[0].mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.pooled(self.features(images))
