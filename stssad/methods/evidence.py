"""The test of the tuned augmentation, on held-out data."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..scoring.evidence import Evidence, combined, halves, p_value_along
from ..tuning.progress import Notify
from ..tuning.restarts import own_seed, run_all
from .frozen_restart import FrozenRestart, TuningData

TEST_SHARE = 2  # a half makes one in so many of the iterations: it decides nothing but the test
HALVING = 1_000_003  # own number of the halves' seed, so that nothing else draws the same


@dataclass(frozen=True)
class HalfSearch:
    """Half of the images choose among the restarts by their first loss, and tune the best one."""

    restarts: list[FrozenRestart]

    def run(self, notify: Notify | None = None) -> tuple[str, Tensor]:
        """The augmentation type, and the shift of embeddings (d,) that it makes."""
        best = min(self.restarts, key=lambda restart: restart.initial_loss())
        result = best.run(notify)
        return result.candidate.augmentation, result.shift.shift


def weigh(
    restarts: list[FrozenRestart],
    data: TuningData,
    chosen_alignment: float,
    seed: int,
    n_processes: int,
    notify: Notify | None,
) -> Evidence:
    """Each half of the images searches again, and the other half tests its result."""
    generator = torch.Generator().manual_seed(own_seed(seed, HALVING))
    of_normal = halves(len(data.normal), generator)
    of_pool = halves(len(data.Z_val), generator)
    learners = [data.half(n, p) for n, p in zip(of_normal, of_pool, strict=True)]
    number = len(restarts)
    searches = [
        HalfSearch([r.for_test(number + k, learner, TEST_SHARE) for r in restarts])
        for k, learner in enumerate(learners)
    ]
    results = run_all(searches, n_processes, notify)
    p_values = []
    for k, (_, shift) in enumerate(results):
        whitening, other = learners[k].whitening, 1 - k
        p = p_value_along(
            normal=whitening(data.normal.pooled[of_normal[other]]),
            pool=whitening(data.Z_val[of_pool[other]]),
            u=whitening.shift(shift),
        )
        p_values.append(p)
    return Evidence(chosen_alignment, combined(*p_values), (results[0][0], results[1][0]))
