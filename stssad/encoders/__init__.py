"""Encoders: pictures (n, 3, m, m), channel-normalised, to embeddings (n, d).

Any `nn.Module` of that kind will do. One with a `reset_parameters` method is trained from scratch:
its weights are drawn anew, from the seed, for every start. One without keeps the weights it has.
"""

from .efficientnet_lite import EfficientNetLite0
from .mlp import MLP
from .resnet import ResNet18

__all__ = ["MLP", "EfficientNetLite0", "ResNet18"]
