"""ST-SSAD whose embedding comes from an earlier layer, for the table "What settings bring".

stssad bench run svhn --methods benchmarks/variant_encoders.py:EarlierLayer --tasks 6/9,6/2
"""

from stssad import STSSAD, ResNet18, Rotation, Settings


class Shorter(ResNet18):
    """Without the last two blocks: maps at 1/16 of the image's side, 4 * width channels."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.layers = self.layers[:6]
        self.embedding_dim = 4 * width


def EarlierLayer(settings: Settings, seed: int) -> STSSAD:  # noqa: N802
    return STSSAD("paper", Rotation(), Shorter(settings.width), settings, seed)
