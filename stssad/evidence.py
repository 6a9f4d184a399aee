"""Does the pool show the kind of anomaly that the best augmentation imitates, or is it chance?

An augmentation that was tuned to a pool leans towards that pool whatever it holds. So the pool is
halved: each half chooses a start and tunes it again, and the other half tests what came of it.
"""

from dataclasses import dataclass, replace

import torch

from .alignment import Whitening, alignment, cross_fitted, evidence, halves
from .starts import Finished, Imitation, Job, Notify, run_starts

LEAST_Z = 3.0


@dataclass(frozen=True)
class Evidence:
    """J of the chosen augmentation, and z: by how many standard deviations the pool leans to it."""

    alignment: float
    z: float

    @property
    def fits(self) -> bool:
        return self.z >= LEAST_Z

    def in_words(self, noun: str) -> str:
        numbers = f"J = {self.alignment:.2f}, z = {self.z:.1f}"
        if self.fits:
            return (
                f"The pool leans towards {noun} far more than normal pictures do by chance "
                f"({numbers}), so the scores are stretched in that direction."
            )
        return (
            f"No augmentation fits: the pool doesn't lean towards the best of them, {noun}, more "
            f"than normal pictures may by chance ({numbers}; at least {LEAST_Z:.0f} is asked for). "
            "The scores are those of the encoder alone, not stretched."
        )


def weigh(
    jobs: list[Job], finished: list[Finished], chosen: int, n_processes: int, notify: Notify | None
) -> Evidence:
    """Two starts more, each on half of the pool; `jobs` hold embeddings of all pictures."""
    job = jobs[0]
    assert job.embedded is not None
    Z_trn, Z_val = job.embedded
    whitening = Whitening.of(Z_trn)
    split = halves(len(Z_val), job.seed)
    shifts = whitening.shift(torch.stack([imitation_of(f).shift for f in finished]))
    again = []
    for k, half in enumerate(split):
        of_half = whitening.shift(Z_val[half].double().mean(dim=0) - whitening.mean)
        best = jobs[int(alignment(shifts, of_half).argmax())]
        embedded = Z_trn, Z_val[half]
        again.append(replace(best, start=len(jobs) + k, pool=job.pool[half], embedded=embedded))
    learned = run_starts(again, n_processes, notify)
    one, other = (whitening.shift(imitation_of(f).shift) for f in learned)
    normal = cross_fitted(Z_trn, job.seed)
    pools = whitening(Z_val[split[0]].double()), whitening(Z_val[split[1]].double())
    z = evidence(normal, pools, (one, other))
    return Evidence(imitation_of(finished[chosen]).alignment, z)


def imitation_of(finished: Finished) -> Imitation:
    assert finished.imitation is not None, "only where the encoder stays as it is"
    return finished.imitation
