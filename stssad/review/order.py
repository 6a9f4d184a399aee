"""Which image to look at next: where a mark teaches most."""

from collections.abc import Collection, Sequence

import numpy as np

from ..scoring.threshold import ScoreArray

N_DOUBTFUL = 10  # images around the threshold, before one of each kind is shown


def proposed(
    scores: ScoreArray, threshold: float, kinds: Sequence[int], marked: Collection[int]
) -> list[int]:
    """Images that nobody has marked: the closest to the threshold, half of them above it; then one
    of each kind; then again."""
    kinds_of = np.asarray(kinds)
    todo = [i for i in range(len(scores)) if i not in set(marked)]
    doubt = sorted(todo, key=lambda i: (abs(scores[i] - threshold), i))
    above = [i for i in doubt if scores[i] > threshold]
    below = [i for i in doubt if scores[i] <= threshold]
    order: list[int] = []
    while above or below:
        for _ in range(N_DOUBTFUL // 2):
            for side in (above, below):
                if side:
                    order.append(side.pop(0))
        for kind in sorted({int(k) for k in kinds_of if k >= 0}):
            rest = [i for i in (*above, *below) if kinds_of[i] == kind]
            if rest:
                typical = max(rest, key=lambda i: (scores[i], -i))
                order.append(typical)
                (above if typical in above else below).remove(typical)
    return order


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """An interval for a share, of 95 %; everything where there is nothing to go by."""
    if n == 0:
        return 0.0, 1.0
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))
