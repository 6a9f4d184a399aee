"""The same images as if photographed in other light: what a user's pool may come with."""

from collections.abc import Callable

import torch
from torch import Tensor

SIDE = (0.7, 1.1)  # from the left edge to the right


def scaled(images: Tensor, gain: float | Tensor) -> Tensor:
    """uint8 images (n, 3, m, m), brighter or darker."""
    return (images.float() * gain).round().clamp(0, 255).to(torch.uint8)


LIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda images: images,
    "30 % darker": lambda images: scaled(images, 0.7),
    "20 % darker": lambda images: scaled(images, 0.8),
    "15 % darker": lambda images: scaled(images, 0.85),
    "15 % brighter": lambda images: scaled(images, 1.15),
    "20 % brighter": lambda images: scaled(images, 1.2),
    "30 % brighter": lambda images: scaled(images, 1.3),
    "from one side": lambda images: scaled(images, torch.linspace(*SIDE, images.shape[-1])),
}
