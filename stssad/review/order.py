"""Which image to label next: where a label is worth most."""

from collections.abc import Collection, Sequence

import numpy as np

from ..scoring.tail import ScoreArray

N_DOUBTFUL = 10  # images around the threshold, before one of each group is shown


def propose_order(
    scores: ScoreArray, threshold: float, groups: Sequence[int], labeled: Collection[int]
) -> list[int]:
    """Images without a label: the closest to the threshold, half of them above it; then one of each
    group; then again."""
    group_of = np.asarray(groups)
    unlabeled = set(range(len(scores))) - set(labeled)
    doubtful = sorted(unlabeled, key=lambda i: (abs(scores[i] - threshold), i))
    above = [i for i in doubtful if scores[i] > threshold]
    below = [i for i in doubtful if scores[i] <= threshold]
    order: list[int] = []
    while above or below:
        for _ in range(N_DOUBTFUL // 2):
            for side in (above, below):
                if side:
                    order.append(side.pop(0))
        for group in sorted({int(g) for g in group_of if g >= 0}):
            members = [i for i in (*above, *below) if group_of[i] == group]
            if members:
                typical = max(members, key=lambda i: (scores[i], -i))
                order.append(typical)
                (above if typical in above else below).remove(typical)
    return order


def wilson_interval(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Of a share, at 95 %; from 0 to 1 where there is nothing to go by."""
    if n == 0:
        return 0.0, 1.0
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))
