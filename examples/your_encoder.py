"""An encoder of your own instead of the one that comes along: here torchvision's ResNet-18.

    pip install torchvision          # stssad itself neither needs nor imports it
    python examples/your_encoder.py good/ pile/

Any module from pictures (n, 3, m, m) to embeddings (n, d) will do; channels are normalised as for
ImageNet before it. With `feature_maps` and `pooled` it also gives heatmaps: maps from fine to
coarse, and the embedding that belongs to them. Without a `reset_parameters` of its own it keeps
its weights; with settings that train (Settings.quick()) it is fine-tuned.
"""

import sys

import torch
from torch import Tensor, nn

from stssad import STSSAD


class Stages(nn.Module):
    """A ResNet by its stages, as torchvision names them: conv1, bn1, maxpool, layer1, ..."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            backbone.conv1, backbone.bn1, nn.ReLU(inplace=True), backbone.maxpool, backbone.layer1
        )
        self.stages = nn.ModuleList([backbone.layer2, backbone.layer3])

    def feature_maps(self, x: Tensor) -> list[Tensor]:
        out, maps = self.stem(x), []
        for stage in self.stages:
            out = stage(out)
            maps.append(out)
        return maps

    def pooled(self, maps: list[Tensor]) -> Tensor:
        return torch.cat([m.mean(dim=(2, 3)) for m in maps], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.pooled(self.feature_maps(x))


def main() -> None:
    try:
        from torchvision.models import ResNet18_Weights, resnet18
    except ImportError:
        sys.exit("this example needs torchvision: pip install torchvision")
    normal, pile = sys.argv[1:3]
    encoder = Stages(resnet18(weights=ResNet18_Weights.DEFAULT))  # torchvision downloads these
    model = STSSAD(encoder=encoder, jobs=2).fit(normal, pile)
    print(model.learned_, model.evidence_)
    model.save("runs/own-encoder")
    again = STSSAD.load("runs/own-encoder", encoder=encoder)  # yours has to be passed again
    print(again.decision_function(pile)[:5])


if __name__ == "__main__":
    main()
