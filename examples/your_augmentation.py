"""An augmentation of your own: a bright line of learnable thickness, tuned like any other.

    python examples/your_augmentation.py

One class that implements the protocol stssad.augment.Augmentation; nothing else has to change.
"""

import math

import torch
from torch import Generator, Tensor

from stssad import STSSAD
from stssad.experiments.testbeds.synthetic import texture_crops


class BrightLine:
    """Adds a soft bright line across the image, at a random height."""

    names = ("log_thickness",)  # `a` is unconstrained: a positive number is stored as its logarithm
    noun = "a bright line"

    def initial_values(self) -> list[Tensor]:
        return [torch.tensor([math.log(thickness)]) for thickness in (0.02, 0.2)]

    def random_value(self, generator: Generator) -> Tensor:
        return math.log(0.01) + torch.rand(1, generator=generator) * math.log(30)

    def draw(self, n: int, generator: Generator) -> Tensor:
        return torch.rand(n, 1, generator=generator)  # the height of each image's line

    def __call__(self, images: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        m = images.shape[-1]
        rows = (torch.arange(m, dtype=images.dtype, device=images.device) + 0.5) / m
        line = torch.exp(-(((rows[None] - noise) / torch.exp(a[0])) ** 2))  # (n, m)
        return (images + 0.5 * line[:, None, :, None]).clamp(0, 1)

    def describe(self, a: Tensor) -> dict[str, float]:
        return {"thickness": float(torch.exp(a[0]))}


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    line, planted = BrightLine(), 0.06
    train = texture_crops("brick", 240, 64, generator)
    pool = texture_crops("brick", 128, 64, generator)
    a = torch.tensor([math.log(planted)])
    pool[:64] = line(pool[:64], a, line.draw(64, generator))
    model = STSSAD(augmentation=line, jobs=2).fit(train, pool)
    for c in model.candidates_:
        print(f"from {c.initial['thickness']:.3f} to {c.learned['thickness']:.3f}")
    print(f"planted thickness {planted}, learned {model.learned_['thickness']:.3f}")
    scores = model.decision_scores_
    above = (scores[:64, None] > scores[None, 64:]).mean()
    print(f"AUROC {above:.3f}; {model.contamination_.summarise()}")


if __name__ == "__main__":
    main()
