"""What the methods ask of an encoder, and how a plain module becomes one."""

import copy
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Encoder(Protocol):
    """An `nn.Module` with these. Images come in [0, 1]: each encoder normalises its own input."""

    trainable: bool  # True: the paper's method trains it. False: it keeps the weights it has

    def features(self, images: Tensor) -> list[Tensor]:
        """Maps (n, c, h, w), fine to coarse, of images (n, 3, m, m)."""

    def pooled(self, maps: list[Tensor]) -> Tensor:
        """The embeddings (n, d) that belong to the maps."""

    def config(self) -> dict[str, Any]:
        """What the constructor needs to build this encoder again.

        One that is trained from scratch also has `reset_parameters()`, which draws its weights.
        """


class InputNormalization(nn.Module):
    """(x - mean) / std for each channel of images in [0, 1]; constants, not saved as weights."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std


def imagenet_normalization() -> InputNormalization:
    """ImageNet's channel statistics, as in the CutPaste paper, whose detector the paper takes."""
    return InputNormalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class PlainEncoder(nn.Module):
    """Any module from images (n, 3, m, m) in [0, 1] to embeddings (n, d), without maps."""

    def __init__(self, module: nn.Module, trainable: bool) -> None:
        super().__init__()
        self.module, self.trainable = module, trainable
        if hasattr(module, "reset_parameters"):
            self.reset_parameters = module.reset_parameters

    def features(self, images: Tensor) -> list[Tensor]:
        z = self.module(images)
        if z.ndim != 2:
            raise ValueError(
                "the encoder must map images (n, 3, m, m) to embeddings (n, d), got an output of "
                f"shape {tuple(z.shape)} for {len(images)} image(s); pool or flatten it"
            )
        return [z[:, :, None, None]]

    def pooled(self, maps: list[Tensor]) -> Tensor:
        return maps[0].flatten(1)

    def config(self) -> dict[str, Any]:
        return {}


def as_encoder(module: nn.Module, trains: bool) -> nn.Module:
    """An encoder as it is, or a plain module as one that the method trains, or keeps."""
    if not hasattr(module, "features") or not hasattr(module, "pooled"):
        return PlainEncoder(module, trains)
    if not isinstance(trainable := getattr(module, "trainable", None), bool):
        raise ValueError(
            f"{type(module).__name__}.trainable must be True or False, got {trainable!r}: says "
            "whether the paper's method may train this encoder"
        )
    return module


def embed(encoder: nn.Module, images: Tensor) -> Tensor:
    """Embeddings (n, d)."""
    return encoder.pooled(encoder.features(images))  # type: ignore[operator,no-any-return]


@torch.no_grad()
def embedding_dim(encoder: nn.Module, image_size: int) -> int:
    """The length of the embeddings, by trying the encoder on an empty image."""
    encoder = copy.deepcopy(encoder).cpu().eval()
    blank = torch.zeros(1, 3, image_size, image_size)
    z = embed(encoder, blank)
    if z.ndim != 2:
        raise ValueError(
            f"the encoder's pooled(features(x)) must be embeddings (n, d), got shape "
            f"{tuple(z.shape)} for one image; pool or flatten it"
        )
    if type(encoder).forward is not nn.Module.forward and not isinstance(encoder, PlainEncoder):
        called = encoder(blank)
        if called.shape != z.shape or not torch.allclose(called, z, rtol=1e-3, atol=1e-4):
            raise ValueError(
                "the encoder's pooled(features(x)) differs from what it returns for x; make "
                "forward return that, or leave it out"
            )
    return int(z.shape[1])
