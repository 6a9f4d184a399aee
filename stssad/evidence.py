"""Does the pool show the kind of anomaly that the best augmentation imitates, or is it chance?

An augmentation that was tuned to a pool leans towards that pool whatever it holds. So normal
pictures and pool are halved: each half chooses a start and tunes it again, and the other half tests
what came of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .alignment import Whitening, alignment, cross_fitted, evidence, halves
from .starts import Finished, Imitation, Job, Notify, run_starts

LEAST_Z = 3.0


@dataclass(frozen=True)
class Evidence:
    """J of the chosen augmentation, and z: by how many standard deviations the pool leans to it.

    `tested` are the families that the two halves chose; most often the chosen one, twice.
    """

    alignment: float
    z: float
    tested: tuple[str, str] = ("", "")

    @property
    def fits(self) -> bool:
        return self.z >= LEAST_Z

    def in_words(self, noun: str) -> str:
        numbers = f"J = {self.alignment:.2f}, z = {self.z:.1f}"
        halves_words = f"the halves of the pool that tested it chose {' and '.join(self.tested)}"
        if self.fits:
            return (
                f"The pool leans towards {noun} far more than normal pictures do by chance "
                f"({numbers}; {halves_words}), so the scores are stretched in that direction."
            )
        return (
            f"No augmentation fits: the pool doesn't lean towards the best of them, {noun}, more "
            f"than normal pictures may by chance ({numbers}, at least {LEAST_Z:.0f} is asked for; "
            f"{halves_words}). The scores are those of the encoder alone, not stretched."
        )


def weigh(
    jobs: list[Job], finished: list[Finished], chosen: int, n_processes: int, notify: Notify | None
) -> Evidence:
    """Two starts more, each on half of the pictures; `jobs` hold embeddings of all of them."""
    job = jobs[0]
    assert job.embedded is not None
    Z_trn, Z_val = job.embedded
    whitening = Whitening.of(Z_trn)
    shifts = whitening.shift(torch.stack([imitation_of(f).shift for f in finished]))
    of_normal, of_pool = halves(len(Z_trn), job.seed), halves(len(Z_val), job.seed)
    again = []
    for k, (n, p) in enumerate(zip(of_normal, of_pool, strict=True)):
        moved = Z_val[p].double().mean(dim=0) - Z_trn[n].double().mean(dim=0)
        best = jobs[int(alignment(shifts, whitening.shift(moved)).argmax())]
        again.append(
            replace(
                best,
                start=len(jobs) + k,
                train=job.train[n],
                pool=job.pool[p],
                embedded=(Z_trn[n], Z_val[p]),
            )
        )
    learned = run_starts(again, n_processes, notify)
    crossed = cross_fitted(Z_trn, job.seed)
    z = evidence(
        normal=(crossed[of_normal[0]], crossed[of_normal[1]]),
        pool=(whitening(Z_val[of_pool[0]].double()), whitening(Z_val[of_pool[1]].double())),
        shifts=tuple_of(whitening.shift(imitation_of(f).shift) for f in learned),
    )
    one, other = (type(j.augmentation).__name__ for j in again)
    return Evidence(imitation_of(finished[chosen]).alignment, z, (one, other))


def tuple_of(two: Iterator[Tensor]) -> tuple[Tensor, Tensor]:
    one, other = two
    return one, other


def imitation_of(finished: Finished) -> Imitation:
    assert finished.imitation is not None, "only where the encoder stays as it is"
    return finished.imitation
