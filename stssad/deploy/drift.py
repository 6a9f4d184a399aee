"""Have images drifted since the fit? A test martingale on the ranks of their statistics.

Legend: x_t a value of image t (its score, brightness, ...); p_t its rank among the normal images of
the fit and all images before it, ties broken at random; M_t the wealth of a gambler who begins with
1 and bets that the next p isn't uniform.

While nothing changes, images are exchangeable, p_1, p_2, ... are independent and uniform (Vovk et
al., 2005), no bet gains on average, and M reaches 1/level with a probability of at most `level`,
at any time (Ville's inequality). Every so many images bets start again, with a smaller part of the
wealth: a late change is detected as soon as an early one.

Anomalies are rare and have high scores; drift moves the bulk. Images whose score is above that of
nine in ten normal images are left out, of the reference as of the stream: a subset of
exchangeable images that is chosen by their own values is exchangeable.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..model import STSSAD
from ..runs.predictions import Prediction
from ..scoring.conditions import CONDITIONS
from ..scoring.decision import FALSE_ALARMS

Values = npt.NDArray[np.float64]
LEVEL = 0.01  # of a false alarm, ever
FEWEST = 20  # normal images to compare with
BULK = 0.9  # of normal images are used
EVERY = 50  # images, bets start again
# Bets on larger (negative) or smaller values. No small ones: a shift by less than a fifth of a
# standard deviation loses them money, and doesn't deserve an alarm.
TILTS = np.array([-1.9, -1.2, 1.2, 1.9])
SPREADS = np.array([-0.9, 0.9])  # bets on values that lie closer together, or further apart
FEWEST_SUSPECT, MOST_FLAGGED = 5, 0.5  # a batch of normal images isn't flagged by half
NEGLIGIBLE = 1e-12  # wealth that is no longer tracked
SCORE = "score"
STATISTICS = (SCORE, *CONDITIONS)


@dataclass(frozen=True)
class Drift:
    """An alarm: what changed, since which image of the stream, from which median to which."""

    statistic: str
    since: int  # about this image, the first is 0
    at: int  # images seen when it was detected
    before: float
    after: float

    def __str__(self) -> str:
        direction = "higher" if self.after > self.before else "lower"
        return (
            f"drift detected at image {self.at}: {self.statistic} is {direction} since about image "
            f"{self.since + 1} (median {self.before:.3g} before, {self.after:.3g} since)"
        )


def suspect_flags(n: int, n_flagged: int, rate: float) -> str | None:
    """A sentence where most of a batch is flagged: its bulk, in which drift shows, is gone."""
    if n < FEWEST_SUSPECT or n_flagged <= MOST_FLAGGED * n:
        return None
    return (
        f"{n_flagged} of {n} images are flagged where {100 * rate:.2g} % of normal ones would be: "
        "is this another product, camera or light?"
    )


class DriftMonitor:
    """Add images one after another; `drift` is None until drift is detected.

    reference: for each statistic, values of normal images: `score`, and those of
        `stssad.scoring.conditions`. level: the probability of ever raising a false alarm.
    rate: the share of normal images that is flagged.
    """

    def __init__(
        self,
        reference: Mapping[str, npt.ArrayLike],
        level: float = LEVEL,
        seed: int = 0,
        rate: float = FALSE_ALARMS,
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
        self.rate, self.n_flagged = rate, 0
        self._rng = np.random.default_rng(seed)
        self._bulk_limit = float(np.quantile(values[SCORE], BULK, method="lower"))
        bulk = values[SCORE] < self._bulk_limit
        self._medians = {name: float(np.median(x[bulk])) for name, x in values.items()}
        self._history = [sorted(values[name][bulk].tolist()) for name in self.names]
        self._stream: list[list[float]] = []  # values of the bulk's images
        self._numbers: list[int] = []  # of those images in the stream
        self._wealth = np.empty((0, len(self.names), len(TILTS) + len(SPREADS)))
        self._started: list[int] = []
        self._n_started = self._n_bets = 0
        self._stakes = self._divide_stake()

    drift: Drift | None

    @staticmethod
    def for_model(model: STSSAD, level: float = LEVEL, seed: int = 0) -> "DriftMonitor":
        """Against the normal images of a fit."""
        conditions = model.fitted_.normal_conditions
        if conditions is None:
            raise ValueError(
                "this model has no brightness, contrast, ... of its normal images; fit it again"
            )
        columns = zip(CONDITIONS, conditions.T.numpy(), strict=True)
        reference = {SCORE: model.normal_scores_, **dict(columns)}
        return DriftMonitor(reference, level, seed, model.false_alarms_)

    def _divide_stake(self) -> Values:
        """(statistics, bets): how the stake of one start is divided; of scores only larger ones
        matter."""
        stake = np.ones((len(self.names), len(TILTS) + len(SPREADS)))
        others = np.ones(stake.shape[1], dtype=bool)
        others[np.flatnonzero(TILTS < 0)] = False
        stake[self.names.index(SCORE), others] = 0
        stake /= stake.sum(axis=1, keepdims=True)
        divided: Values = stake / len(self.names)
        return divided

    def add(self, values: Mapping[str, float]) -> Drift | None:
        """Add an image; the alarm, once there is one."""
        row = [float(values[name]) for name in self.names]
        if not np.isfinite(row).all():
            raise ValueError(f"the values of an image must be finite, got {dict(values)}")
        self.n_seen += 1
        if self.drift is not None or row[self.names.index(SCORE)] >= self._bulk_limit:
            return self.drift
        p = np.array([self._add_and_rank(k, x) for k, x in enumerate(row)])
        self._stream.append(row)
        self._numbers.append(self.n_seen - 1)
        self._bet(p)
        if self.wealth >= 1 / self.level:
            self.drift = self._find_change()
        return self.drift

    def observe(self, prediction: Prediction, conditions: Mapping[str, float]) -> None:
        """Add a scored image."""
        self.n_flagged += prediction.pred_label
        self.add({SCORE: prediction.pred_score, **conditions})

    def summarise(self) -> str:
        """The alarm, or that there is none, in one sentence."""
        if self.drift is not None:
            return str(self.drift)
        return suspect_flags(self.n_seen, self.n_flagged, self.rate) or (
            f"no drift detected in {self.n_seen} images"
        )

    def _add_and_rank(self, k: int, x: float) -> float:
        """In (0, 1): the share of values before it that are larger, ties at random."""
        history = self._history[k]
        low, high = bisect_left(history, x), bisect_right(history, x)
        n_larger, n_same = len(history) - high, high - low
        insort(history, x, lo=low, hi=high)
        rank: float = (n_larger + self._rng.random() * (n_same + 1)) / len(history)
        return rank

    def _bet(self, p: Values) -> None:
        if self._n_bets % EVERY == 0:
            self._n_started += 1
            share = 1 / (self._n_started * (self._n_started + 1))  # all of them together are 1
            self._wealth = np.concatenate([self._wealth, share * self._stakes[None]])
            self._started.append(len(self._stream) - 1)
        self._n_bets += 1
        offset = (p - 0.5)[:, None]
        gains = np.concatenate([1 + TILTS * offset, 1 + SPREADS * (6 * offset**2 - 0.5)], axis=1)
        self._wealth *= gains
        alive = self._wealth.sum(axis=(1, 2)) > NEGLIGIBLE
        if not alive.all():  # to drop a remainder is no gain
            self._wealth = self._wealth[alive]
            self._started = [
                s for s, is_alive in zip(self._started, alive, strict=True) if is_alive
            ]

    @property
    def wealth(self) -> float:
        """M, with what isn't staked yet."""
        return float(self._wealth.sum()) + 1 / (self._n_started + 1)

    def _find_change(self) -> Drift:
        by_statistic = self._wealth.sum(axis=(0, 2))
        k = int(by_statistic.argmax())
        start = self._started[int(self._wealth[:, k].sum(axis=1).argmax())]
        name, column = self.names[k], np.array(self._stream)[:, k]
        before = float(np.median(column[:start])) if start >= EVERY else self._medians[name]
        after = float(np.median(column[start:]))
        return Drift(name, self._numbers[start], self.n_seen, before, after)
