"""A fit that learns from marks: what a reviewer called good joins the normal images, and what was
called defective joins the pool's outliers, from which the score learns its direction.

Nothing is encoded again: a fit keeps embeddings, and of each pool image the patches that are
furthest from normal ones. Of an image that is good after all, these are what a memory bank lacks.
"""

import copy
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..encoders.patches import as_rows
from ..features import Features, NormalFeatures
from ..scoring.calibration import CalibratedSum
from ..scoring.gaussian import ImageGaussian
from ..scoring.lesson import Lesson
from ..scoring.memory_bank import MemoryBank, nearest_distances
from ..scoring.nuisance import without
from ..scoring.part import PartScores, random_folds
from ..scoring.threshold import threshold_for
from ..threads import each
from .anomaly_model import AnomalyModel
from .problem import Fitted

N_KEPT = 16  # patches of each pool image
CHUNK = 16  # images at a time
OUTLIER_RATE = 0.01  # of normal images that would count among the pool's outliers
FEWEST_DEFECTS = 5  # marked ones, from which on they teach
Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Kept:
    """What a refit needs of a fit; `patches` and `distances` for each memory bank of the score."""

    normal: Tensor  # embeddings (n, d)
    relit: Tensor  # of normal images in other light (k, d), and which each is a copy of (k,)
    source: Tensor
    normal_banks: Tensor  # (banks, n): what each bank says of normal images, as if unseen
    pool: Tensor  # embeddings (m, d)
    patches: list[Tensor]  # (m, N_KEPT, c), without the directions of light
    distances: list[Tensor]  # (m, N_KEPT), the largest first

    def tensors(self) -> dict[str, Tensor]:
        plain = ("normal", "relit", "source", "normal_banks", "pool")
        found = {name: getattr(self, name) for name in plain}
        for k, (patches, distances) in enumerate(zip(self.patches, self.distances, strict=True)):
            found |= {f"patches_{k}": patches.half(), f"distances_{k}": distances}
        return found

    @staticmethod
    def of(tensors: dict[str, Tensor]) -> "Kept":
        n_banks = len(tensors["normal_banks"])
        return Kept(
            normal=tensors["normal"],
            relit=tensors["relit"],
            source=tensors["source"],
            normal_banks=tensors["normal_banks"],
            pool=tensors["pool"],
            patches=[tensors[f"patches_{k}"].float() for k in range(n_banks)],
            distances=[tensors[f"distances_{k}"] for k in range(n_banks)],
        )


def kept_of(scorer: CalibratedSum, normal: NormalFeatures, crossed: list[Tensor],
            pool: Features) -> Kept:  # fmt: skip
    """Right after a fit; `crossed` has what each part says of normal images."""
    banks = [part for part in scorer.parts if isinstance(part, MemoryBank)]
    of_normal = [s.cpu() for s, part in zip(crossed, scorer.parts, strict=True)
                 if isinstance(part, MemoryBank)]  # fmt: skip
    found = [furthest(bank, pool) for bank in banks]
    return Kept(
        normal=normal.pooled.cpu(),
        relit=normal.relit.pooled.cpu(),
        source=normal.source,
        normal_banks=torch.stack(of_normal) if of_normal else torch.empty(0, len(normal)),
        pool=pool.pooled.cpu(),
        patches=[patches for patches, _ in found],
        distances=[distances for _, distances in found],
    )


def furthest(bank: MemoryBank, pool: Features) -> tuple[Tensor, Tensor]:
    """Of each image, the patches that are furthest from the bank, and how far they are."""

    def work(some: Features) -> tuple[Tensor, Tensor]:
        chosen = some.small if bank.of_small else some
        assert chosen is not None and chosen.patches is not None
        distances = bank.distances(chosen).flatten(1).cpu()
        top = distances.topk(min(N_KEPT, distances.shape[1]))
        rows = without(as_rows(chosen.patches.to(bank.bank.device)), bank.nuisance).cpu()
        rows = rows.reshape(*distances.shape, -1)
        index = top.indices[:, :, None].expand(-1, -1, rows.shape[2])
        return rows.gather(1, index), top.values

    found = list(each(pool.chunks(CHUNK), work))
    return torch.cat([p for p, _ in found]), torch.cat([d for _, d in found])


@dataclass(frozen=True)
class Relearned:
    """The score that has learned from marks, and what it says of normal images and pool."""

    scorer: CalibratedSum
    normal_scores: Tensor
    pool_scores: Tensor
    lesson: Lesson | None


def refit(fitted: Fitted, kept: Kept, good: Index, defects: Index, seed: int) -> Fitted:
    """`good` and `defects` are numbers of pool images."""
    scorer = fitted.model.scorer
    if not isinstance(scorer, CalibratedSum) or not isinstance(scorer.parts[0], ImageGaussian):
        raise ValueError(
            "a refit works for the pretrained method's own score; fit again with the good ones "
            "among the normal images"
        )
    device = scorer.total.device
    found = relearned(scorer, kept, good, defects, seed)
    old = fitted.model
    model = AnomalyModel(old.encoder, found.scorer.to(device), old.image_size, old.small_size)
    return replace(
        fitted,
        model=model,
        normal_scores=found.normal_scores,
        pool_scores=found.pool_scores,
        lesson=found.lesson,
    )


def relearned(
    scorer: CalibratedSum, kept: Kept, good: Index, defects: Index, seed: int
) -> Relearned:
    """The parts again, with the good ones among the normal images; then the lesson.

    Scale and threshold stay those of the normal images that were there before: the good ones were
    looked at because their scores are high, and would raise both.
    """
    scorer = copy.deepcopy(scorer).cpu()
    own = torch.from_numpy(good)
    pooled = torch.cat([kept.normal, kept.pool[own]])
    normal = NormalFeatures(Features(pooled), Features(kept.relit), kept.source)
    gaussian, *banks = scorer.parts
    assert isinstance(gaussian, ImageGaussian)
    scorer.parts[0] = gaussian = ImageGaussian(**gaussian.config())
    fold = random_folds(len(normal), seed)
    crossed = [gaussian.fit(normal, fold, seed)]
    of_pool = []
    for k, bank in enumerate(banks):
        assert isinstance(bank, MemoryBank)
        unseen = unseen_scores(bank, kept, k, own)
        crossed.append(PartScores(torch.cat([kept.normal_banks[k], unseen])))
        of_pool.append(rescored(bank, kept, k, own).index_put((own,), unseen))
        added = kept.patches[k][own].flatten(0, 1)
        bank.bank = torch.cat([bank.bank, added.to(bank.bank.dtype)])
    n_before = len(kept.normal)
    plain_normal = scorer.calibrate(first(n_before, crossed)).scores
    plain = scorer.combined([gaussian(Features(kept.pool)).scores, *of_pool])
    limit = threshold_for(plain_normal.numpy(), OUTLIER_RATE, scorer.floor)
    taught = teachers(plain.numpy() > limit, good, defects)
    crossed, lesson = scorer.learn(Features(kept.pool)[taught], normal, fold, crossed)
    normal_scores = scorer.calibrate(first(n_before, crossed)).scores
    of_image = gaussian(Features(kept.pool)).scores
    of_image[own] = crossed[0].scores[n_before:]  # as if unseen, like the others
    return Relearned(scorer, normal_scores, scorer.combined([of_image, *of_pool]), lesson)


def first(n: int, found: list[PartScores]) -> list[PartScores]:
    return [PartScores(part.scores[:n]) for part in found]


def teachers(outlying: npt.NDArray[np.bool_], good: Index, defects: Index) -> Tensor:
    """Whom the score learns its direction from: outliers that nobody called good, and, from five
    on, what was called defective."""
    chosen = outlying.copy()
    if len(defects) >= FEWEST_DEFECTS:
        chosen[defects] = True
    chosen[good] = False
    return torch.from_numpy(np.flatnonzero(chosen))


def rescored(bank: MemoryBank, kept: Kept, k: int, good: Tensor) -> Tensor:
    """Scores of the pool by a bank that also holds the patches of the good ones."""
    distances = kept.distances[k]
    if len(good):
        added = kept.patches[k][good].flatten(0, 1)
        rows = kept.patches[k].flatten(0, 1)
        distances = torch.minimum(distances, nearest_distances(rows, added).reshape_as(distances))
    return top_mean(distances, bank.n_highest)


def unseen_scores(bank: MemoryBank, kept: Kept, k: int, good: Tensor) -> Tensor:
    """Of the good ones, each by a bank that holds all of them but itself."""
    found = []
    for i in good:
        others = kept.patches[k][good[good != i]].flatten(0, 1)
        distances = kept.distances[k][i]
        if len(others):
            distances = torch.minimum(distances, nearest_distances(kept.patches[k][i], others))
        found.append(top_mean(distances[None], bank.n_highest))
    return torch.cat(found) if found else torch.empty(0, dtype=torch.float64)


def top_mean(distances: Tensor, n_highest: int) -> Tensor:
    top = distances.topk(min(n_highest, distances.shape[1])).values
    return top.mean(dim=1).double()
