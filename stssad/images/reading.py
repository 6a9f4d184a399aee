"""How image files are read: their size, their shape, and what is white.

This module imports nothing heavy: settings hold a `Reading`, and the command line makes its flags
from settings.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Aspect = Literal["stretch", "crop", "pad"]
SIZE_STEP, LEAST_CHOSEN_SIZE = 32, 64  # of image sizes that are chosen by the files' own
WHITE_LEVELS = (1, 255, 1023, 4095, 16383, 65535)  # of grey images with more than 8 bits


@dataclass(frozen=True)
class Reading:
    """How files become images: their size, and what to do where they aren't square."""

    image_size: int
    aspect: Aspect = "stretch"
    white_level: int | None = None  # of grey images with more than 8 bits
    may_shrink: bool = False  # a fit takes a smaller size where the files are smaller

    def sized_for(self, side: int | None) -> "Reading":
        """With a size that no longer shrinks: that of files of `side` pixels, where it may."""
        size = self.image_size
        if self.may_shrink and side is not None:
            size = max(LEAST_CHOSEN_SIZE, min(size, SIZE_STEP * math.ceil(side / SIZE_STEP)))
        return replace(self, image_size=size, may_shrink=False)


def usual_white_level(brightest: Iterable[float]) -> int | None:
    """What is white in deep grey images with these largest values; None: there are none.

    The least of the usual depths (8, 10, 12, 14, 16 bits) that none exceeds: a camera of 12 bits
    stores them in files of 16.
    """
    top = max(brightest, default=None)
    if top is None:
        return None
    return next((level for level in WHITE_LEVELS if top <= level), int(top))
