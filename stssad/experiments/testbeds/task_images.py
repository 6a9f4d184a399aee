"""From normal and anomalous images to a task, by one of two protocols.

transductive: the pool is the test set itself, unlabeled.
inductive:    tuning and choosing see one half of the unlabeled images, the AUC is of the other.

A pool of given contamination is the same by both, and so is training: only the test differs.
"""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from .task import Task

Protocol = Literal["transductive", "inductive"]
LARGEST_POOL = 60  # normal images in a pool of given contamination


@dataclass(frozen=True)
class TaskImages:
    """What a data set has for one task, before a protocol divides it."""

    name: str
    train: Tensor  # normal images (n, 3, m, m)
    normal: Tensor  # normal ones beside them, for pool and test
    anomalous: Tensor = field(repr=False)

    def task(self, protocol: Protocol, seed: int, contamination: float | None = None) -> Task:
        """Labels go into the task's test set, and nowhere else."""
        if protocol not in get_args(Protocol):
            raise ValueError(f"unknown protocol {protocol!r}; use transductive or inductive")
        generator = torch.Generator().manual_seed(seed)
        if contamination is not None:
            return self._contaminated(generator, contamination, protocol)
        if protocol == "transductive":
            return self._transductive(generator)
        return self._halves(generator)

    def _transductive(self, generator: Generator) -> Task:
        images, labels = mixed(self.normal, self.anomalous, generator)
        return Task(self.name, self.train, images, images, labels.numpy())

    def _halves(self, generator: Generator) -> Task:
        """Stratified: half of the normal and half of the anomalous images on each side."""
        (normal, normal_test), (defects, defects_test) = (
            halved(kind, generator) for kind in (self.normal, self.anomalous)
        )
        pool, _ = mixed(normal, defects, generator)
        test, labels = mixed(normal_test, defects_test, generator)
        return Task(self.name, self.train, pool, test, labels.numpy())

    def _contaminated(self, generator: Generator, share: float, protocol: Protocol) -> Task:
        """A pool of which a given share is anomalous.

        As many normal images as the anomalous half allows, up to 60: from half of those beside
        the training ones, then from the training ones, which are taken out of training. The test:
        that pool or, inductive, the images beside the training ones, of both kinds, that are not
        in the pool.
        """
        if not 0 < share < 1:
            raise ValueError(f"contamination must lie between 0 and 1, got {share}")
        defects = self.anomalous[torch.randperm(len(self.anomalous), generator=generator)]
        train = self.train[torch.randperm(len(self.train), generator=generator)]
        normal = self.normal[torch.randperm(len(self.normal), generator=generator)]
        k = len(defects) // 2
        n = min(LARGEST_POOL, math.floor(k * (1 - share) / share + 1e-9))  # 0.3 is a little less
        from_normal = min(n, len(normal) // 2)
        n_defects = round(n * share / (1 - share))
        if n == 0 or n_defects == 0:
            raise ValueError(
                f"{self.name} has {len(defects)} anomalous images, too few for a pool with "
                f"contamination {share:g}; choose another"
            )
        pool_normal = torch.cat([normal[:from_normal], train[: n - from_normal]])
        pool, pool_labels = mixed(pool_normal, defects[:n_defects], generator)
        train = train[n - from_normal :]
        if protocol == "transductive":
            return Task(self.name, train, pool, pool, pool_labels.numpy())
        test, labels = mixed(normal[from_normal:], defects[n_defects:], generator)
        return Task(self.name, train, pool, test, labels.numpy())


def halved(images: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    order = torch.randperm(len(images), generator=generator)
    return images[order[: len(order) // 2]], images[order[len(order) // 2 :]]


def mixed(normal: Tensor, anomalous: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Both in random order, so that none tells which is which, and the labels in that order."""
    order = torch.randperm(len(normal) + len(anomalous), generator=generator)
    labels = (torch.arange(len(order)) >= len(normal)).long()
    return torch.cat([normal, anomalous])[order], labels[order]
