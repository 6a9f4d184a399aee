"""Other forms of the augmentation that ST-SSAD tunes on SVHN, for the table "What settings bring".

stssad bench run svhn --augmentation benchmarks/variants.py:EightAngles --tasks 6/9,6/2
"""

from functools import partial

from stssad import Rotation

EightAngles = partial(Rotation, angles_deg=tuple(range(0, 360, 45)))
BlackCorners = partial(Rotation, "zeros")
