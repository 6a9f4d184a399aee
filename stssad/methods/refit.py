"""A fit that learns from marks: what a reviewer called good joins the normal images; what was
called defective joins the pool's outliers, from which the score learns its direction, and is an
example that other images may resemble.

Nothing is encoded again: a fit keeps embeddings, and of each image the patches that are furthest
from normal ones. Of an image that is good after all, these are what a memory bank lacks.
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
from ..scoring.examples import Examples
from ..scoring.gaussian import ImageGaussian
from ..scoring.lesson import Lesson
from ..scoring.memory_bank import MemoryBank, nearest_distances
from ..scoring.nuisance import without
from ..scoring.part import PartScores, random_folds
from ..scoring.threshold import threshold_for
from ..storage import require
from ..threads import each
from .anomaly_model import AnomalyModel
from .problem import Fitted

N_KEPT = 16  # patches of each image
CHUNK = 16  # images at a time
OUTLIER_RATE = 0.01  # of normal images that would count among the pool's outliers
FEWEST_DEFECTS = 5  # marked ones, from which on they teach
Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Kept:
    """What a refit needs of a fit; `far` and `normal_far` for each memory bank of the score."""

    normal: Tensor  # embeddings (n, d)
    relit: Tensor  # of normal images in other light (k, d), and which each is a copy of (k,)
    source: Tensor
    normal_far: list["Far"]  # of normal images, from banks that haven't seen them
    pool: Tensor  # embeddings (m, d)
    far: list["Far"]

    def tensors(self) -> dict[str, Tensor]:
        found = {name: getattr(self, name) for name in ("normal", "relit", "source", "pool")}
        for k, (far, normal_far) in enumerate(zip(self.far, self.normal_far, strict=True)):
            found |= far.tensors(f"{k}") | normal_far.tensors(f"normal_{k}")
        return found

    @staticmethod
    def of(tensors: dict[str, Tensor]) -> "Kept":
        n_banks = sum(name.startswith("patches_normal_") for name in tensors)
        plain = {name: tensors[name] for name in ("normal", "relit", "source", "pool")}
        return Kept(
            **plain,
            normal_far=[Far.of(tensors, f"normal_{k}") for k in range(n_banks)],
            far=[Far.of(tensors, f"{k}") for k in range(n_banks)],
        )


def check_kept(kept: Kept, scorer: CalibratedSum, n_normal: int, n_pool: int) -> None:
    """Of a file that anybody may have written: what belongs together fits together."""
    gaussian, *banks = scorer.parts
    assert isinstance(gaussian, ImageGaussian) and gaussian.density.whitening.mean is not None
    d, n_relit = len(gaussian.density.whitening.mean), len(kept.relit)
    wanted = {"normal": (n_normal, d), "relit": (n_relit, d), "pool": (n_pool, d)}
    for name, shape in wanted.items():
        found = getattr(kept, name)
        require(found.shape == shape and bool(torch.isfinite(found).all()), f"wrong {name}")
    source = kept.source
    sound = source.shape == (n_relit,) and source.dtype == torch.int64
    require(sound and bool(((source >= 0) & (source < n_normal)).all()), "wrong source")
    require(len(kept.far) == len(kept.normal_far) == len(banks), "wrong number of banks")
    for bank, far, normal_far in zip(banks, kept.far, kept.normal_far, strict=True):
        assert isinstance(bank, MemoryBank)
        for each_far, n in ((far, n_pool), (normal_far, n_normal)):
            n_kept = each_far.distances.shape[1] if each_far.distances.ndim == 2 else 0
            sizes = (n, n_kept, bank.bank.shape[1])
            fits = n_kept > 0 and each_far.patches.shape == sizes and len(each_far.distances) == n
            finite = (
                torch.isfinite(each_far.patches).all() & torch.isfinite(each_far.distances).all()
            )
            require(fits and bool(finite), "wrong patches")


@dataclass(frozen=True)
class Far:
    """Of each image, the patches that are furthest from a memory bank, and how far they are."""

    patches: Tensor  # (m, N_KEPT, c), without the directions of light
    distances: Tensor  # (m, N_KEPT), the largest first

    def tensors(self, name: str) -> dict[str, Tensor]:
        return {f"patches_{name}": self.patches.half(), f"distances_{name}": self.distances}

    @staticmethod
    def of(tensors: dict[str, Tensor], name: str) -> "Far":
        return Far(tensors[f"patches_{name}"].float(), tensors[f"distances_{name}"])

    def of_some(self, index: Tensor) -> "Far":
        return Far(self.patches[index], self.distances[index])

    def scores(self, added: Tensor, n_highest: int) -> Tensor:
        """(m,): what a bank says that also holds other patches (k, c)."""
        distances = self.distances
        if len(added):
            new = nearest_distances(self.patches.flatten(0, 1), added)
            distances = torch.minimum(distances, new.reshape_as(distances))
        top = distances.topk(min(n_highest, distances.shape[1])).values
        return top.mean(dim=1).double()


def kept_of(scorer: CalibratedSum, normal: NormalFeatures, crossed: list[PartScores],
            pool: Features) -> Kept:  # fmt: skip
    """Right after a fit; `crossed` has what each part says of normal images, as if unseen."""
    banks = [
        (part, of_normal.maps)
        for part, of_normal in zip(scorer.parts, crossed, strict=True)
        if isinstance(part, MemoryBank)
    ]
    return Kept(
        normal=normal.pooled.cpu(),
        relit=normal.relit.pooled.cpu(),
        source=normal.source,
        normal_far=[furthest(bank, normal.features, maps) for bank, maps in banks],
        pool=pool.pooled.cpu(),
        far=[furthest(bank, pool) for bank, _ in banks],
    )


def furthest(bank: MemoryBank, features: Features, maps: Tensor | None = None) -> Far:
    """`maps`: distances (n, h, w), where others than this bank's own are meant."""

    def work(rows: Tensor) -> Far:
        some = features[rows]
        chosen = some.small if bank.of_small else some
        assert chosen is not None and chosen.patches is not None
        distances = bank.distances(chosen) if maps is None else maps[rows]
        distances = distances.flatten(1).cpu()
        top = distances.topk(min(N_KEPT, distances.shape[1]))
        patches = without(as_rows(chosen.patches.to(bank.bank.device)), bank.nuisance).cpu()
        patches = patches.reshape(*distances.shape, -1)
        index = top.indices[:, :, None].expand(-1, -1, patches.shape[2])
        return Far(patches.gather(1, index), top.values)

    found = list(each(torch.split(torch.arange(len(features)), CHUNK), work))
    return Far(torch.cat([x.patches for x in found]), torch.cat([x.distances for x in found]))


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
    looked at because their scores are high, and would raise both. Every marked image is scored as
    if it hadn't been marked.
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
    for bank, far, normal_far in zip(banks, kept.far, kept.normal_far, strict=True):
        assert isinstance(bank, MemoryBank)
        added = far.patches[own].flatten(0, 1)
        unseen = unseen_scores(bank, far, own)
        of_normal = normal_far.scores(added, bank.n_highest)
        crossed.append(PartScores(torch.cat([of_normal, unseen])))
        of_pool.append(far.scores(added, bank.n_highest).index_put((own,), unseen))
        bank.bank = torch.cat([bank.bank, added.to(bank.bank.dtype)])
    n_before = len(kept.normal)
    plain_normal = scorer.calibrate(first(n_before, crossed)).scores
    plain = scorer.combined([gaussian(Features(kept.pool)).scores, *of_pool])
    limit = threshold_for(plain_normal.numpy(), OUTLIER_RATE, scorer.floor)
    taught = teachers(plain.numpy() > limit, good, defects)
    if len(defects) >= FEWEST_DEFECTS:
        gaussian.density.examples = Examples(
            kept.pool[torch.from_numpy(defects)], kept.pool[own] if len(own) else None
        )
    crossed, lesson = scorer.learn(Features(kept.pool)[taught], normal, fold, crossed)
    normal_scores = scorer.calibrate(first(n_before, crossed)).scores
    of_image = gaussian.density.distance(kept.pool, numbers(len(kept.pool), defects, good))
    if len(own):  # by densities that haven't seen them, either
        goods = np.arange(n_before, len(normal))
        own_numbers = numbers(len(normal), defects[:0], goods, len(defects))
        of_image[own] = gaussian.crossed(normal, fold, own_numbers).scores[n_before:]
        gaussian.forget()
    return Relearned(scorer, normal_scores, scorer.combined([of_image, *of_pool]), lesson)


def numbers(n: int, defects: Index, good: Index, begin: int = 0) -> Tensor:
    """(n,): which example each of n images is, defects counted first (`Examples.gain`)."""
    found = np.full(n, -1, dtype=np.int64)
    marked = np.concatenate([defects, good])
    found[marked] = begin + np.arange(len(marked))
    return torch.from_numpy(found)


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


def unseen_scores(bank: MemoryBank, far: Far, good: Tensor) -> Tensor:
    """Of the good ones, each by a bank that holds all of them but itself."""
    found = [
        far.of_some(i[None]).scores(far.patches[good[good != i]].flatten(0, 1), bank.n_highest)
        for i in good
    ]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.float64)
