"""Of the images that are flagged in a batch, how many are wrong? q-values from p-values.

Benjamini and Hochberg (1995). With p-values of unseen normal images the share of false ones among
those flagged is kept on average, although all p-values rest on the same normal images (Bates et
al., "Testing for outliers with conformal p-values", Annals of Statistics 2023).
"""

import numpy as np

from .tail import NormalTail, ScoreArray


def q_values(p_values: ScoreArray) -> ScoreArray:
    """For each image the false discovery rate at which it is flagged, with all that score higher:
    m p / (number of images whose p-value is as small), made to rise with p."""
    m = len(p_values)
    order = np.argsort(p_values, kind="stable")
    raw = p_values[order] * m / np.arange(1, m + 1)
    rising = np.minimum.accumulate(raw[::-1])[::-1]
    q = np.empty(m)
    q[order] = np.minimum(rising, 1)
    return q


def discovery_threshold(scores: ScoreArray, normal: NormalTail, rate: float) -> float:
    """The score above which a batch's images are flagged at a false discovery rate.

    Half-way between the last image that is flagged and the next; where none is flagged, the score
    that a single anomaly among so many images would need.
    """
    if not 0 < rate < 1:
        raise ValueError(f"the false discovery rate must lie in (0, 1), got {rate}")
    flagged = q_values(normal.p_values(scores)) <= rate
    if not flagged.any():
        return max(normal.threshold(rate / len(scores)), float(scores.max()))
    lowest = float(scores[flagged].min())
    below = scores[scores < lowest]
    if not len(below):
        return float(np.nextafter(lowest, -np.inf))
    return min((lowest + float(below.max())) / 2, float(np.nextafter(lowest, -np.inf)))
