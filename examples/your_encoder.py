"""An encoder of your own instead of the one that is included: here torchvision's ResNet-18.

    pip install torchvision          # stssad itself neither needs nor imports it
    python examples/your_encoder.py good/ pool/

Any module from images (n, 3, m, m) in [0, 1] to embeddings (n, d) works. One with `features`
(maps, fine to coarse), `pooled` (the embedding that belongs to them), `trainable` and `config`, as
here, also gives anomaly maps. It normalises its own input. With `trainable = False` it keeps its
weights; with True, method="paper" fine-tunes it.
"""

import sys
from typing import Any

import torch
from torch import Tensor, nn

from stssad import STSSAD
from stssad.encoders.encoder import imagenet_normalization


class Stages(nn.Module):
    """A ResNet by its stages, as torchvision names them: conv1, bn1, maxpool, layer1, ..."""

    trainable = False

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.normalization = imagenet_normalization()  # of channels, as the weights expect it
        self.stem = nn.Sequential(
            backbone.conv1, backbone.bn1, nn.ReLU(inplace=True), backbone.maxpool, backbone.layer1
        )
        self.stages = nn.ModuleList([backbone.layer2, backbone.layer3])

    def features(self, images: Tensor) -> list[Tensor]:
        out, maps = self.stem(self.normalization(images)), []
        for stage in self.stages:
            out = stage(out)
            maps.append(out)
        return maps

    def pooled(self, maps: list[Tensor]) -> Tensor:
        return torch.cat([m.mean(dim=(2, 3)) for m in maps], dim=1)

    def forward(self, images: Tensor) -> Tensor:
        return self.pooled(self.features(images))

    def config(self) -> dict[str, Any]:
        return {}  # stssad can't rebuild it: pass it to STSSAD.load


def main() -> None:
    try:
        from torchvision.models import ResNet18_Weights, resnet18
    except ImportError:
        sys.exit("this example needs torchvision: pip install torchvision")
    normal, pool = sys.argv[1:3]
    encoder = Stages(resnet18(weights=ResNet18_Weights.DEFAULT))  # torchvision downloads these
    model = STSSAD(encoder=encoder, jobs=2).fit(normal, pool)
    print(model.learned_, model.evidence_)
    model.save("runs/own-encoder")
    again = STSSAD.load("runs/own-encoder", encoder=encoder)  # it has to be passed again
    print(again.decision_function(pool)[:5])


if __name__ == "__main__":
    main()
