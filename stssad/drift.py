"""Has the line changed since the fit? A test martingale on the ranks of what images show.

Legend: x_t a value of image t (its score, brightness, ...); p_t its rank among the normal images of
the fit and all images before it, ties broken at random; M_t what a gambler owns who begins with 1
and bets that the next p isn't uniform.

While nothing changes, images are exchangeable, p_1, p_2, ... are independent and uniform (Vovk et
al., 2005), no bet gains in the mean, and M reaches 1/level with a probability of at most `level`,
over all time (Ville's inequality). Every so many images bets begin anew, with a smaller part of the
money: a change that comes late is found as soon as an early one.

Anomalies are rare and have high scores; drift moves the bulk. Images whose score is above that of
nine in ten normal images take no part, in the reference as in the stream: what is left of
exchangeable images is exchangeable.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .model import STSSAD
from .predictions import Prediction
from .scoring.conditions import CONDITIONS

Values = npt.NDArray[np.float64]
LEVEL = 0.01  # of a false alarm, ever
FEWEST = 20  # normal images to compare with
BULK = 0.9  # of normal images take part
EVERY = 50  # images, bets begin anew
# Bets on larger (negative) or smaller values. No small ones: a shift by less than a fifth of a
# standard deviation loses them money, and isn't worth an alarm.
TILTS = np.array([-1.9, -1.2, 1.2, 1.9])
SPREADS = np.array([-0.9, 0.9])  # bets on values that lie closer together, or further apart
NEGLIGIBLE = 1e-12  # money that isn't worth keeping track of
SCORE = "score"
NAMES = (SCORE, *CONDITIONS)


@dataclass(frozen=True)
class Drift:
    """An alarm: what changed, since which image of the stream, from which median to which."""

    statistic: str
    since: int  # about this image, the first is 0
    at: int  # images seen when it was found
    before: float
    after: float

    def __str__(self) -> str:
        way = "higher" if self.after > self.before else "lower"
        return (
            f"the line has changed: {self.statistic} is {way} since about image {self.since + 1} "
            f"(median {self.before:.3g} before, {self.after:.3g} since; found at image {self.at})"
        )


class DriftMonitor:
    """Add images one after another; `drift` is None until the line has changed.

    reference: for each statistic, values of normal images: `score`, and those of
        `stssad.scoring.conditions`. level: the probability of a false alarm over all time.
    """

    def __init__(
        self, reference: Mapping[str, npt.ArrayLike], level: float = LEVEL, seed: int = 0
    ) -> None:
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level}")
        values = {name: np.asarray(x, dtype=np.float64) for name, x in reference.items()}
        if SCORE not in values or len({x.shape for x in values.values()}) != 1:
            raise ValueError(
                f"reference must hold {SCORE!r}, and as many values of each statistic as there are "
                "normal images"
            )
        if values[SCORE].ndim != 1 or not all(np.isfinite(x).all() for x in values.values()):
            raise ValueError("the reference must be finite numbers, one for each normal image")
        if len(values[SCORE]) < FEWEST:
            raise ValueError(
                f"drift needs scores of at least {FEWEST} normal images, got {len(values[SCORE])}"
            )
        self.names = list(values)
        self.level, self.n_seen, self.drift = level, 0, None
        self._rng = np.random.default_rng(seed)
        self._limit = float(np.quantile(values[SCORE], BULK, method="lower"))
        bulk = values[SCORE] < self._limit
        self._medians = {name: float(np.median(x[bulk])) for name, x in values.items()}
        self._history = [sorted(values[name][bulk].tolist()) for name in self.names]
        self._stream: list[list[float]] = []  # of the bulk, to tell what it was like since
        self._places: list[int] = []  # their numbers in the stream
        self._money = np.empty((0, len(self.names), len(TILTS) + len(SPREADS)))
        self._begun: list[int] = []
        self._n_begun = self._n_bets = 0
        self._stake = self._stakes()

    drift: Drift | None

    @staticmethod
    def of(model: STSSAD, level: float = LEVEL, seed: int = 0) -> "DriftMonitor":
        """Against the normal images of a fit."""
        conditions = model.fitted_.normal_conditions
        if conditions is None:
            raise ValueError("this model doesn't know its normal images' light; fit it again")
        columns = zip(CONDITIONS, conditions.T.numpy(), strict=True)
        return DriftMonitor({SCORE: model.normal_scores_, **dict(columns)}, level, seed)

    def _stakes(self) -> Values:
        """(statistics, bets): how the money of one beginning is divided; only larger scores are a
        worry."""
        stake = np.ones((len(self.names), len(TILTS) + len(SPREADS)))
        others = np.ones(stake.shape[1], dtype=bool)
        others[np.flatnonzero(TILTS < 0)] = False
        stake[self.names.index(SCORE), others] = 0
        stake /= stake.sum(axis=1, keepdims=True)
        divided: Values = stake / len(self.names)
        return divided

    def add(self, values: Mapping[str, float]) -> Drift | None:
        """One more image; the alarm, once there is one."""
        row = [float(values[name]) for name in self.names]
        if not np.isfinite(row).all():
            raise ValueError(f"the values of an image must be finite, got {dict(values)}")
        self.n_seen += 1
        if self.drift is not None or row[self.names.index(SCORE)] >= self._limit:
            return self.drift
        p = np.array([self._rank(k, x) for k, x in enumerate(row)])
        self._stream.append(row)
        self._places.append(self.n_seen - 1)
        self._bet(p)
        if self.wealth >= 1 / self.level:
            self.drift = self._told()
        return self.drift

    def observe(self, prediction: Prediction, conditions: Mapping[str, float]) -> None:
        """One more image that was scored."""
        self.add({SCORE: prediction.pred_score, **conditions})

    def told(self) -> str:
        """What there is to say, in a sentence."""
        if self.drift is not None:
            return str(self.drift)
        return f"no drift: {self.n_seen} images are as the normal ones of the fit were"

    def _rank(self, k: int, x: float) -> float:
        """In (0, 1): the share of values before it that are larger, ties at random."""
        history = self._history[k]
        low, high = bisect_left(history, x), bisect_right(history, x)
        n_larger, n_same = len(history) - high, high - low
        insort(history, x, lo=low, hi=high)
        rank: float = (n_larger + self._rng.random() * (n_same + 1)) / len(history)
        return rank

    def _bet(self, p: Values) -> None:
        if self._n_bets % EVERY == 0:
            self._n_begun += 1
            share = 1 / (self._n_begun * (self._n_begun + 1))  # all of them together are 1
            self._money = np.concatenate([self._money, share * self._stake[None]])
            self._begun.append(len(self._stream) - 1)
        self._n_bets += 1
        away = (p - 0.5)[:, None]
        gains = np.concatenate([1 + TILTS * away, 1 + SPREADS * (6 * away**2 - 0.5)], axis=1)
        self._money *= gains
        worth = self._money.sum(axis=(1, 2)) > NEGLIGIBLE
        if not worth.all():  # to forget a loss is no gain
            self._money = self._money[worth]
            self._begun = [b for b, kept in zip(self._begun, worth, strict=True) if kept]

    @property
    def wealth(self) -> float:
        """M: with what isn't laid out yet."""
        return float(self._money.sum()) + 1 / (self._n_begun + 1)

    def _told(self) -> Drift:
        by_statistic = self._money.sum(axis=(0, 2))
        k = int(by_statistic.argmax())
        begun = self._begun[int(self._money[:, k].sum(axis=1).argmax())]
        name, column = self.names[k], np.array(self._stream)[:, k]
        before = float(np.median(column[:begun])) if begun >= EVERY else self._medians[name]
        after = float(np.median(column[begun:]))
        return Drift(name, self._places[begun], self.n_seen, before, after)
