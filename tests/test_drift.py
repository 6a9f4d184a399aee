"""The drift monitor: silent while nothing changes, quick when light does, blind to anomalies."""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from command import run
from small_run import make_folders

from stssad import DriftMonitor, EfficientNetLite0
from stssad.deploy.drift import STATISTICS
from stssad.encoders.encoding import embed_all
from stssad.images.reading import Reading
from stssad.images.source import find_images, read_images
from stssad.scoring.conditions import measure_conditions
from stssad.scoring.gaussian import GaussianDensity

DATA = os.environ.get("STSSAD_DATA")
N_NORMAL = 200
Table = npt.NDArray[np.float64]


def table(n: int, seed: int) -> Table:
    """(n, 5): correlated values of skewed shapes, as real ones are."""
    rng = np.random.default_rng(seed)
    plain = rng.normal(size=(n, len(STATISTICS))) + 0.5 * rng.normal(size=(n, 1))
    return np.stack([np.exp(0.5 * plain[:, 0]), *plain.T[1:]], axis=1)


def alarm_at(stream: Table, reference: Table, seed: int = 0) -> int | None:
    """How many images were seen when the alarm came."""
    monitor = DriftMonitor(dict(zip(STATISTICS, reference.T, strict=True)), seed=seed)
    for row in stream:
        if monitor.add(dict(zip(STATISTICS, row, strict=True))) is not None:
            return monitor.n_seen
    return None


@pytest.mark.slow
def test_streams_without_change_give_one_alarm_in_a_hundred_at_most() -> None:
    found = []
    for seed in range(100):
        values = table(N_NORMAL + 10_000, seed)
        found.append(alarm_at(values[N_NORMAL:], values[:N_NORMAL], seed))
    assert sum(at is not None for at in found) <= 1, found


def test_wealth_is_a_martingale() -> None:
    """Its mean stays 1 whatever is bet, here over many short streams."""
    wealth = []
    for seed in range(400):
        values = table(60, seed)
        monitor = DriftMonitor(dict(zip(STATISTICS, values[:40].T, strict=True)), seed=seed)
        for row in values[40:]:
            monitor.add(dict(zip(STATISTICS, row, strict=True)))
        wealth.append(monitor.wealth)
    error = np.std(wealth) / np.sqrt(len(wealth))
    assert abs(np.mean(wealth) - 1) < 4 * error and error < 0.1
    assert np.std(wealth) > 0.05  # something was bet


@pytest.mark.parametrize("begins", [0, 700, 4000])
@pytest.mark.parametrize("column", [1, 3])
def test_a_shift_of_the_bulk_is_found_early_or_late(begins: int, column: int) -> None:
    for seed in range(3):
        values = table(N_NORMAL + begins + 300, seed)
        values[N_NORMAL + begins :, column] += 1.5
        at = alarm_at(values[N_NORMAL:], values[:N_NORMAL], seed)
        assert at is not None and begins < at <= begins + 200


def test_the_alarm_says_what_changed_and_since_when() -> None:
    values = table(N_NORMAL + 800, 5)
    values[N_NORMAL + 500 :, 2] -= 2
    monitor = DriftMonitor(dict(zip(STATISTICS, values[:N_NORMAL].T, strict=True)))
    for row in values[N_NORMAL:]:
        monitor.add(dict(zip(STATISTICS, row, strict=True)))
    drift = monitor.drift
    assert drift is not None and drift.statistic == "contrast"
    assert abs(drift.since - 500) < 80 and drift.after < drift.before - 1
    assert "contrast is lower since about image" in monitor.summarise()


def test_anomalies_alone_are_no_drift() -> None:
    for seed in range(5):
        values = table(N_NORMAL + 3000, seed)
        rng = np.random.default_rng(seed)
        anomalous = np.flatnonzero(rng.random(len(values)) < 0.05)
        anomalous = anomalous[anomalous >= N_NORMAL]
        values[anomalous, 0] *= np.exp(rng.normal(2, 0.5, len(anomalous)))
        values[anomalous, 1:] += rng.normal(0, 2, (len(anomalous), len(STATISTICS) - 1))
        assert alarm_at(values[N_NORMAL:], values[:N_NORMAL], seed) is None


def test_ties_are_broken_evenly() -> None:
    """A line that always shows the same number hasn't changed."""
    ones = np.ones((1200, len(STATISTICS)))
    ones[:, 0] = np.random.default_rng(0).normal(size=1200)  # else nothing is in the bulk
    assert alarm_at(ones[N_NORMAL:], ones[:N_NORMAL]) is None


def test_misuse_is_one_sentence() -> None:
    with pytest.raises(ValueError, match="at least 20 normal images"):
        DriftMonitor({"score": [1.0, 2.0]})
    with pytest.raises(ValueError, match="must hold 'score'"):
        DriftMonitor({"brightness": np.arange(30.0)})
    with pytest.raises(ValueError, match="must be finite"):
        DriftMonitor({"score": np.full(30, np.nan)})
    monitor = DriftMonitor({"score": np.arange(30.0)})
    with pytest.raises(ValueError, match="must be finite"):
        monitor.add({"score": float("nan")})
    with pytest.raises(ValueError, match="level"):
        DriftMonitor({"score": np.arange(30.0)}, level=2)


@pytest.mark.skipif(DATA is None, reason="STSSAD_DATA names no folder of real images")
@pytest.mark.parametrize(
    "category", ["bottle", *(pytest.param(c, marks=pytest.mark.slow) for c in ("tile", "hazelnut"))]
)
def test_ten_percent_more_light_on_real_images_is_found(category: str) -> None:
    """Normal images of one folder: a third is fitted to, a third the reference, a third arrives."""
    assert DATA is not None
    folder = Path(DATA) / "mvtec" / category / "train/good"
    if not folder.is_dir():
        pytest.skip(f"{folder} isn't there")
    images = read_images(find_images(folder), Reading(128))[0]
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    fitted, reference, line = (images[order[k::3]] for k in range(3))
    encoder = EfficientNetLite0().eval()
    density = GaussianDensity().fit(embed_all(encoder, fitted))

    def values(some: torch.Tensor) -> Table:
        scores = density.score(embed_all(encoder, some))[:, None]
        return np.concatenate([scores.numpy(), measure_conditions(some).numpy()], axis=1)

    assert alarm_at(values(line), values(reference)) is None
    brighter = (line.float() * 1.1).clamp(0, 255).to(torch.uint8)
    stream = np.concatenate([values(line), values(brighter)])
    at = alarm_at(stream, values(reference))
    assert at is not None and len(line) < at <= len(line) + 200


def test_score_says_whether_the_line_has_changed(tmp_path: Path) -> None:
    folder = make_folders(tmp_path)
    fitted = run(
        "fit",
        "--normal",
        folder / "good",
        "--unlabeled",
        folder / "pool",
        "--out",
        tmp_path / "run",
        "--max-iterations",
        2,
        "--image-size",
        64,
    )
    assert fitted.returncode == 0, fitted.stderr
    done = run("score", tmp_path / "run", folder / "good", "--drift", "--out", tmp_path / "s.csv")
    assert done.returncode == 0, done.stderr
    assert "no drift" in done.stdout
