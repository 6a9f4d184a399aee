"""A fit that learns from labels: images labeled good join the normal ones; defects join the pool's
outliers, from which the score learns its direction, and are examples that others may resemble.

Nothing is encoded again: a fit stores embeddings, and of each image the patches that are furthest
from normal ones. Of an image that is good after all, these are what a memory bank lacks.
"""

import copy
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..encoders.features import Features, NormalFeatures
from ..encoders.patches import as_rows
from ..parallel.threads import each
from ..scoring.examples import Examples
from ..scoring.folds import PartScores, random_folds
from ..scoring.gaussian import ImageGaussian
from ..scoring.lesson import Lesson, outlier_limit
from ..scoring.memory_bank import MemoryBank, all_nearest_distances
from ..scoring.nuisance import without
from ..scoring.pool_auc import Sides
from ..scoring.pool_part import CANDIDATES, PoolEmbeddings, PoolPart, Trial
from ..scoring.score import PretrainedScore
from ..scoring.tail import ScoreArray
from ..storage.files import require
from .anomaly_model import AnomalyModel
from .problem import Fitted, Workings

N_PATCHES = 16  # patches of each image
CHUNK = 16  # images at a time
FEWEST_DEFECTS = 5  # labeled ones, below which the score learns nothing from them
Index = npt.NDArray[np.int64]
EMBEDDINGS = ("normal", "relit", "source", "pool", "pool_fold", "held_out")


@dataclass(frozen=True)
class RefitData:
    """What a refit needs of a fit; `far` and `normal_far` for each memory bank of the score."""

    normal: Tensor  # embeddings (n, d)
    relit: Tensor  # of normal images in other light (k, d), and which each is a copy of (k,)
    source: Tensor
    normal_far: list["FarPatches"]  # of normal images, from banks that haven't seen them
    pool: Tensor  # embeddings (m, d), and folds (m,)
    pool_fold: Tensor
    far: list["FarPatches"]
    held_out: Tensor  # embeddings (h, d) of the normal images that set the threshold; often none
    held_far: list["FarPatches"]

    def tensors(self) -> dict[str, Tensor]:
        tensors = {name: getattr(self, name) for name in EMBEDDINGS}
        for name, banks in (("", self.far), ("normal_", self.normal_far), ("held_", self.held_far)):
            for k, far in enumerate(banks):
                tensors |= far.tensors(f"{name}{k}")
        return tensors

    @staticmethod
    def of(tensors: dict[str, Tensor]) -> "RefitData":
        n_banks = sum(name.startswith("patches_normal_") for name in tensors)
        return RefitData(
            **{name: tensors[name] for name in EMBEDDINGS},
            normal_far=[FarPatches.of(tensors, f"normal_{k}") for k in range(n_banks)],
            far=[FarPatches.of(tensors, f"{k}") for k in range(n_banks)],
            held_far=[FarPatches.of(tensors, f"held_{k}") for k in range(n_banks)],
        )


def check_refit_data(data: RefitData, fitted: Fitted) -> None:
    """A file that anybody may have written must fit the model that it comes with."""
    scorer = fitted.model.scorer
    if not isinstance(scorer, PretrainedScore) or fitted.pool is None:
        return  # `refit` says that it can't
    n_normal, n_held = len(fitted.train_index), len(fitted.held_out_index)
    n_pool = len(fitted.pool.scores)
    banks, mean = scorer.banks, scorer.gaussian.density.whitening.mean
    assert mean is not None
    d, n_relit = len(mean), len(data.relit)
    wanted = {"normal": (n_normal, d), "relit": (n_relit, d), "pool": (n_pool, d)}
    wanted["held_out"] = (n_held, d)
    for name, shape in wanted.items():
        rows = getattr(data, name)
        require(rows.shape == shape and bool(torch.isfinite(rows).all()), f"wrong {name}")
    source = data.source
    sound = source.shape == (n_relit,) and source.dtype == torch.int64
    require(sound and bool(((source >= 0) & (source < n_normal)).all()), "wrong source")
    fold = data.pool_fold
    sound = fold.shape == (n_pool,) and fold.dtype == torch.int64 and bool((fold >= 0).all())
    require(sound, "wrong folds")
    of_banks = (data.far, n_pool), (data.normal_far, n_normal), (data.held_far, n_held)
    require(all(len(far) == len(banks) for far, _ in of_banks), "wrong number of banks")
    for k, bank in enumerate(banks):
        for far, n in of_banks:
            far[k].check(n, bank.bank.shape[1])


@dataclass(frozen=True)
class FarPatches:
    """Of each image, the patches that are furthest from a memory bank, and how far they are."""

    patches: Tensor  # (m, N_PATCHES, c), without the directions of light
    distances: Tensor  # (m, N_PATCHES), the largest first

    def check(self, n: int, n_channels: int) -> None:
        """That these are patches of n images."""
        n_patches = self.distances.shape[1] if self.distances.ndim == 2 else 0
        fits = self.patches.shape == (n, n_patches, n_channels) and len(self.distances) == n
        finite = torch.isfinite(self.patches).all() & torch.isfinite(self.distances).all()
        require(n_patches > 0 and fits and bool(finite), "wrong patches")

    def tensors(self, name: str) -> dict[str, Tensor]:
        return {f"patches_{name}": self.patches.half(), f"distances_{name}": self.distances}

    @staticmethod
    def of(tensors: dict[str, Tensor], name: str) -> "FarPatches":
        return FarPatches(tensors[f"patches_{name}"].float(), tensors[f"distances_{name}"])

    def select(self, index: Tensor) -> "FarPatches":
        return FarPatches(self.patches[index], self.distances[index])

    def scores(self, added: Tensor, n_highest: int) -> Tensor:
        """(m,): the scores of a bank that also holds other patches (k, c)."""
        distances = self.distances
        if len(added):
            new = all_nearest_distances(self.patches.flatten(0, 1), added)
            distances = torch.minimum(distances, new.reshape_as(distances))
        top = distances.topk(min(n_highest, distances.shape[1])).values
        return top.mean(dim=1).double()


def collect_refit_data(scorer: PretrainedScore, workings: Workings) -> RefitData:
    """Right after a fit."""
    normal, pool = workings.normal, workings.pool
    assert pool is not None and workings.pool_fold is not None
    _, *of_banks = workings.crossed
    banks = zip(scorer.for_banks(normal.features), of_banks, strict=True)
    held_out = pool[:0] if workings.held_out is None else workings.held_out
    return RefitData(
        normal=normal.pooled.cpu(),
        relit=normal.relit.pooled.cpu(),
        source=normal.source,
        normal_far=[
            find_far_patches(bank, features, scores.maps) for (bank, features), scores in banks
        ],
        pool=pool.pooled.cpu(),
        pool_fold=workings.pool_fold,
        far=[find_far_patches(*bank) for bank in scorer.for_banks(pool)],
        held_out=held_out.pooled.cpu(),
        held_far=[find_far_patches(*bank) for bank in scorer.for_banks(held_out)],
    )


def find_far_patches(
    bank: MemoryBank, features: Features, maps: Tensor | None = None
) -> FarPatches:
    """`maps`: distances (n, h, w), if not those of this bank."""

    def work(rows: Tensor) -> FarPatches:
        chunk = features[rows]
        assert chunk.patches is not None
        distances = bank(chunk) if maps is None else maps[rows]
        distances = distances.flatten(1).cpu()
        top = distances.topk(min(N_PATCHES, distances.shape[1]))
        patches = without(as_rows(chunk.patches.to(bank.bank.device)), bank.nuisance).cpu()
        patches = patches.reshape(*distances.shape, patches.shape[1])
        index = top.indices[:, :, None].expand(-1, -1, patches.shape[2])
        return FarPatches(patches.gather(1, index), top.values)

    chunks = list(each(torch.split(torch.arange(len(features)), CHUNK), work))
    return FarPatches(
        torch.cat([x.patches for x in chunks]), torch.cat([x.distances for x in chunks])
    )


@dataclass(frozen=True)
class Relearned:
    """The score that has learned from labels, and its scores of normal images and pool."""

    scorer: PretrainedScore
    normal_scores: Tensor
    pool_scores: Tensor
    lesson: Lesson


def refit(fitted: Fitted, data: RefitData, good: Index, defects: Index, seed: int) -> Fitted:
    """`good` and `defects` are numbers of pool images."""
    scorer = fitted.model.scorer
    if not isinstance(scorer, PretrainedScore) or fitted.pool is None:
        raise ValueError(
            "a refit works for the pretrained method's own score; fit again with the good ones "
            "among the normal images"
        )
    device = scorer.total.device
    new = relearn(scorer, data, good, defects, seed, fitted.pool.trial)
    old = fitted.model
    model = AnomalyModel(old.encoder, new.scorer.to(device), old.image_size, old.small_size)
    return replace(
        fitted,
        model=model,
        normal_scores=new.normal_scores,
        pool=replace(
            fitted.pool, scores=new.pool_scores, lesson=new.lesson, trial=labeled(fitted.pool.trial)
        ),
    )


def labeled(trial: Trial | None) -> Trial | None:
    """The fit's trial, whose direction is no longer the one that was tested."""
    return replace(trial, by_labels=True) if trial is not None and trial.is_taught else trial


def relearn(
    scorer: PretrainedScore,
    data: RefitData,
    good: Index,
    defects: Index,
    seed: int,
    trial: Trial | None = None,
) -> Relearned:
    """Fit the parts again, with the good ones among the normal images; then learn from defects.

    Scale and threshold stay those of the normal images that were there before: the good ones were
    reviewed because their scores are high, and would raise both. Every labeled image is scored as
    if it hadn't been labeled.
    """
    scorer = copy.deepcopy(scorer).cpu()
    own = torch.from_numpy(good)
    pooled = torch.cat([data.normal, data.pool[own]])
    normal = NormalFeatures(Features(pooled), Features(data.relit), data.source)
    scorer.gaussian, scorer.pool_part = ImageGaussian(**scorer.gaussian.config()), PoolPart()
    gaussian = scorer.gaussian
    fold = random_folds(len(normal), seed)
    of_banks = extend_banks(scorer, data, own)
    crossed = [gaussian.fit(normal, fold), *map(PartScores, of_banks.normal)]
    n_before = len(data.normal)
    plain_normal = scorer.calibrate(keep_first(n_before, crossed)).scores
    plain = scorer.combined([gaussian(Features(data.pool)), *of_banks.pool])
    direction_is_taught = trial is not None and trial.is_taught
    outlying = (plain > outlier_limit(plain_normal)).numpy() & (not direction_is_taught)
    if len(defects) >= FEWEST_DEFECTS:
        gaussian.density.examples = Examples(
            data.pool[torch.from_numpy(defects)], data.pool[own] if len(own) else None
        )
    teachers = choose_teachers(outlying, good, defects)
    crossed, lesson = scorer.learn(Features(data.pool)[teachers], normal, fold, crossed)
    of_normal = scorer.calibrate(keep_first(n_before, crossed)).scores
    of_image = score_pool_embeddings(gaussian, normal, fold, data, (good, defects))
    scores = Sides(of_normal.numpy(), scorer.combined([of_image, *of_banks.pool]).numpy())
    if trial is not None and trial.is_taught:
        weights = CANDIDATES[trial.candidate](Sides(plain_normal.numpy(), plain.numpy()))
        weights[good], weights[defects] = 0.0, 1.0
        embeddings = gaussian.pool_embeddings(normal, fold, data.pool, data.pool_fold)
        scores = learn_again(scorer, embeddings, weights, trial.weight, scores, good)
    if len(data.held_out):  # they set the threshold
        parts = [gaussian(Features(data.held_out)), *of_banks.held_out]
        held_out = scorer.whole(parts, Features(data.held_out))
        scores = Sides(held_out.numpy(), scores.pool)
    of_normal, of_pool = torch.from_numpy(scores.normal), torch.from_numpy(scores.pool)
    return Relearned(scorer, of_normal, of_pool, lesson)


def learn_again(
    scorer: PretrainedScore,
    embeddings: PoolEmbeddings,
    weights: ScoreArray,
    weight: float,
    scores: Sides,
    good: Index,
) -> Sides:
    """The pool's direction, by other weights of its images; scores with it."""
    direction, along = embeddings.learn(weights)
    n_before = len(scores.normal)
    scorer.gaussian.forget()
    along.pool[good] = along.normal[n_before:]  # under whitenings that haven't seen them
    along = Sides(along.normal[:n_before], along.pool)
    scorer.pool_part = PoolPart.of(direction, weight, along, scores)
    return scorer.pool_part.sums(scores, along)


@dataclass(frozen=True)
class BankScores:
    """Scores of each memory bank, each image's as if it weren't in the bank."""

    normal: list[Tensor]  # with the good ones at the end
    pool: list[Tensor]
    held_out: list[Tensor]


def extend_banks(scorer: PretrainedScore, data: RefitData, good: Tensor) -> BankScores:
    """Add the patches of the good images to the banks, and score all images again."""
    scores = BankScores([], [], [])
    far_patches = zip(scorer.banks, data.far, data.normal_far, data.held_far, strict=True)
    for bank, far, normal_far, held_far in far_patches:
        added = far.patches[good].flatten(0, 1)
        unseen = unseen_scores(bank, far, good)
        scores.normal.append(torch.cat([normal_far.scores(added, bank.n_highest), unseen]))
        scores.pool.append(far.scores(added, bank.n_highest).index_put((good,), unseen))
        scores.held_out.append(held_far.scores(added, bank.n_highest))
        bank.bank = torch.cat([bank.bank, added.to(bank.bank.dtype)])
    return scores


def score_pool_embeddings(
    gaussian: ImageGaussian,
    normal: NormalFeatures,
    fold: Tensor,
    data: RefitData,
    labeled: tuple[Index, Index],
) -> Tensor:
    """(m,): labeled images are not compared with themselves."""
    good, defects = labeled
    n_before, own = len(data.normal), torch.from_numpy(good)
    scores = gaussian.density.distance(data.pool, number_examples(len(data.pool), defects, good))
    if len(own):  # by densities that haven't seen them, either
        goods = np.arange(n_before, len(normal))
        own_numbers = number_examples(len(normal), defects[:0], goods, len(defects))
        scores[own] = gaussian.crossed(normal, fold, own_numbers).scores[n_before:]
        gaussian.forget()
    return scores


def number_examples(n: int, defects: Index, good: Index, begin: int = 0) -> Tensor:
    """(n,): which example each of n images is, defects counted first (`Examples.gain`)."""
    numbers = np.full(n, -1, dtype=np.int64)
    labeled = np.concatenate([defects, good])
    numbers[labeled] = begin + np.arange(len(labeled))
    return torch.from_numpy(numbers)


def keep_first(n: int, parts: list[PartScores]) -> list[PartScores]:
    return [PartScores(part.scores[:n]) for part in parts]


def choose_teachers(outlying: npt.NDArray[np.bool_], good: Index, defects: Index) -> Tensor:
    """Images from which the score learns its direction: outliers that nobody labeled good and,
    from five on, labeled defects."""
    chosen = outlying.copy()
    if len(defects) >= FEWEST_DEFECTS:
        chosen[defects] = True
    chosen[good] = False
    return torch.from_numpy(np.flatnonzero(chosen))


def unseen_scores(bank: MemoryBank, far: FarPatches, good: Tensor) -> Tensor:
    """Of the good ones, each by a bank that holds all of them but itself."""
    scores = [
        far.select(i[None]).scores(far.patches[good[good != i]].flatten(0, 1), bank.n_highest)
        for i in good
    ]
    return torch.cat(scores) if scores else torch.empty(0, dtype=torch.float64)
