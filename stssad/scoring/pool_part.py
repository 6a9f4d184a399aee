"""What the pool teaches the score: a direction of the embedding along which its anomalies lie.

Legend: w whitened embeddings; a weights of the pool's images; u = sum a w, as a unit vector.

Whitened by a shrunk covariance of normal images, the mean of others is their linear discriminant
against normal ones, and what is far out counts for more in it. Candidates differ in the weights.
Whether one is used, and for how much it counts, is decided by images that took no part in it
(`pool_auc`): a score that learns nothing is always among them, and wins ties.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from .false_discovery import q_values
from .lesson import outlier_limit
from .pool_auc import Gain, Sides
from .tail import NormalTail, ScoreArray
from .whitening import Whitening

LEVEL = 0.05  # of the test that each step has to pass
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # standard deviations of a score for one along the direction
# A part may move the pool's anomalies, not its body: a quarter of its normal images lie where the
# lowest quarter of the normal ones do, and so a sixteenth of it where up to 3/4 are anomalous.
BODY, LEAST_BODY = 0.25, 0.25
MOST_BODY = 1 / BODY

Weigh = Callable[[Sides], ScoreArray]


def weigh_all(scores: Sides) -> ScoreArray:
    """Every image of the pool alike."""
    return np.ones(len(scores.pool))


def weigh_unlikely(scores: Sides) -> ScoreArray:
    """By how sure it is that an image is anomalous: one less its q-value."""
    weights: ScoreArray = 1 - q_values(NormalTail.of(scores.normal).p_values(scores.pool))
    return weights


def weigh_outliers(scores: Sides) -> ScoreArray:
    """Those alone that score as one normal image in a hundred does."""
    return (scores.pool > outlier_limit(torch.from_numpy(scores.normal))).astype(np.float64)


CANDIDATES: dict[str, Weigh] = {
    "all images": weigh_all,
    "likely anomalies": weigh_unlikely,
    "outliers": weigh_outliers,
}


class PoolPart(nn.Module):
    """Adds to scores how far embeddings lie along the direction, once there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.direction: Tensor | None
        self.scale: Tensor | None
        self.register_buffer("direction", None)  # (d,), of whitened embeddings
        # Center and spread of normal images along it; the weight; center and spread of the sum.
        self.register_buffer("scale", None)

    @staticmethod
    def of(direction: Tensor, weight: float, along: Sides, scores: Sides) -> "PoolPart":
        """`along`, `scores`: of images by fits that haven't seen them; they set the scale."""
        total = scores.plus(along.standardised(), weight).scale
        part = PoolPart()
        part.direction = direction
        part.scale = torch.tensor([*along.scale, weight, *total], dtype=torch.float64)
        return part.to(direction.device)

    @property
    def is_taught(self) -> bool:
        return self.direction is not None

    def forward(self, scores: Tensor, w: Tensor) -> Tensor:
        """Scores (n,) of images whose whitened embeddings are w (n, d)."""
        assert self.direction is not None
        return self.added(scores, w @ self.direction)

    def added(self, scores: Tensor, along: Tensor) -> Tensor:
        """The same, from how far (n,) they lie along the direction."""
        assert self.scale is not None
        center, spread, weight, total_center, total_spread = self.scale
        total: Tensor = (scores + weight * (along - center) / spread - total_center) / total_spread
        return total

    def sums(self, scores: Sides, along: Sides) -> Sides:
        """The same of normal images and pool."""
        assert self.scale is not None
        part = PoolPart()
        part.scale = self.scale.cpu()
        both = (scores.normal, along.normal), (scores.pool, along.pool)
        normal, pool = (part.added(*map(torch.from_numpy, x)).numpy() for x in both)
        return Sides(normal, pool)


@dataclass(frozen=True)
class Trial:
    """What the best candidate would bring; weight 0: it isn't used."""

    candidate: str
    weight: float
    gain: Gain
    body: float  # of the pool in the lowest quarter of normal images, as a share of a quarter
    differs: bool = False  # the pool was taken under other conditions, so that it isn't used
    by_labels: bool = False  # learned again with labels, and not tested again

    @property
    def is_taught(self) -> bool:
        return self.weight > 0

    @property
    def is_refused(self) -> bool:
        """Whether it would help, if it didn't move most of the pool, not only its anomalies."""
        helps = self.gain.p_value <= LEVEL
        return helps and (self.differs or self.body < LEAST_BODY)


@dataclass(frozen=True)
class PoolEmbeddings:
    """Embeddings of normal images (n, d) and of the pool (m, d), whose folds have numbers, too: an
    image of the pool with the number of a fold teaches nothing to that fold."""

    normal: Tensor
    normal_fold: Tensor
    pool: Tensor
    pool_fold: Tensor
    whitening: Whitening
    by_fold: list[Whitening]  # without each fold of normal images

    def learn(self, weights: ScoreArray) -> tuple[Tensor, Sides]:
        """The direction, and how far each image lies along one that it had no part in: an image of
        the pool along that of the other folds, a normal one under a whitening that hasn't seen
        it."""
        w = self.whitening(self.pool)
        normal, pool = np.zeros(len(self.normal)), np.zeros(len(w))
        for k, whitening in enumerate(self.by_fold):
            rows, own = self.normal_fold == k, (self.pool_fold == k).numpy()
            u = direction_of(whitening(self.pool), weights)
            normal[rows.numpy()] = (whitening(self.normal[rows]) @ u).cpu().numpy()
            of_others = direction_of(w, np.where(own, 0.0, weights))
            pool[own] = (w @ of_others).cpu().numpy()[own]
        return direction_of(w, weights), Sides(normal, pool)


@dataclass(frozen=True)
class PoolProblem:
    """All by which candidates are compared, on images that they haven't seen in any way.

    `scores`: of normal images without their fold, of the pool without the fold of normal images
    that has its number. `left_out` (m, k): of the pool, without each of the folds.
    """

    embeddings: PoolEmbeddings
    scores: Sides
    left_out: ScoreArray

    @property
    def n_folds(self) -> int:
        return len(self.embeddings.by_fold)

    def held_out(self, weigh: Weigh) -> Sides:
        """How far each image lies along a direction that neither it nor its fold had a part in."""
        z = self.embeddings
        normal, pool = np.zeros(len(z.normal)), np.zeros(len(z.pool))
        for k, whitening in enumerate(z.by_fold):
            rows, own = z.normal_fold == k, (z.pool_fold == k).numpy()
            seen = Sides(self.scores.normal[~rows.numpy()], self.left_out[~own, k])
            weights = np.zeros(len(z.pool))
            weights[~own] = weigh(seen)
            w = whitening(z.pool)
            u = direction_of(w, weights)
            normal[rows.numpy()] = (whitening(z.normal[rows]) @ u).cpu().numpy()
            pool[own] = (w @ u).cpu().numpy()[own]
        return Sides(normal, pool)


def direction_of(w: Tensor, weights: ScoreArray) -> Tensor:
    """(d,): the weighted mean of whitened embeddings (m, d), as a unit vector."""
    mean: Tensor = torch.from_numpy(weights).to(w) @ w
    return mean / mean.square().sum().sqrt().clamp_min(1e-300)


def choose_part(problem: PoolProblem) -> Trial:
    """The candidate whose smallest weight helps most surely, at the largest weight that helps."""
    trials = [(name, problem.held_out(weigh)) for name, weigh in CANDIDATES.items()]
    firsts = [
        next(steps(problem.scores, along.standardised(), problem.n_folds)) for _, along in trials
    ]
    best = min(range(len(trials)), key=lambda k: firsts[k][1].p_value)
    name, along = trials[best]
    body = float((along.pool < np.quantile(along.normal, BODY)).mean()) / BODY
    weight, gain = 0.0, firsts[best][1]
    if body >= LEAST_BODY:
        for larger, more in steps(problem.scores, along.standardised(), problem.n_folds):
            if more.p_value > LEVEL:
                break
            weight, gain = larger, Gain(gain.before, more.after, gain.p_value)
    return Trial(name, weight, gain, body)


def steps(scores: Sides, along: Sides, n_folds: int) -> Iterator[tuple[float, Gain]]:
    """Weights, and what each brings over the one before."""
    before = scores
    for weight in WEIGHTS:
        after = scores.plus(along, weight)
        yield weight, Gain.between(before, after, n_folds)
        before = after
