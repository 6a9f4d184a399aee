"""Each augmentation type at four values of `a`, with the noise of one image, for a figure."""

import math

from ...augment import Augmentation
from ...augment.blur import Blur
from ...augment.patch import Patch
from ...augment.scratch import Scratch
from ...augment.stain import Stain
from ...augment.warp import Warp


def log(*values: float) -> list[float]:
    return [math.log(value) for value in values]


EXAMPLES: list[tuple[Augmentation, list[float], list[list[float]]]] = [
    (
        Patch(),
        [0.5, 0.5],
        [
            [*log(area), 0.3, 0.4, amplitude]
            for area, amplitude in ((0.01, -0.5), (0.04, -0.5), (0.01, 0.5), (0.04, 0.5))
        ],
    ),
    (
        Scratch(),
        [0.5, 0.5, 0.3],
        [
            [*log(length, width), amplitude]
            for length, width, amplitude in (
                (0.4, 0.015, -0.6),
                (0.9, 0.015, -0.6),
                (0.4, 0.04, 0.6),
                (0.9, 0.02, 0.6),
            )
        ],
    ),
    (
        Stain(),
        [0.5, 0.5],
        [
            [*log(0.03), *tint]
            for tint in (
                (-0.3, -0.15, 0.3),
                (0.3, 0.15, -0.3),
                (0.3, -0.3, -0.15),
                (-0.3, 0.3, 0.15),
            )
        ],
    ),
    (
        Blur(),
        [0.5, 0.5],
        [
            [*log(area), strength]
            for area, strength in ((0.03, 0.9), (0.1, 0.9), (0.03, -1.5), (0.1, -1.5))
        ],
    ),
    (
        Warp(),
        [0.5, 0.5, 0.1],
        [
            log(area, shift)
            for area, shift in ((0.03, 0.05), (0.1, 0.05), (0.03, 0.15), (0.1, 0.15))
        ],
    ),
]
