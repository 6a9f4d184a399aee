"""What takes longer: rates on fresh textures, memory, real images by the command line."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import binom

from stssad import STSSAD, CutDiff, PretrainedSettings, Settings
from stssad.bench.cell import Line, Store
from stssad.bench.tables import Selection, grid_for, p_value, paper_table, task_groups
from stssad.encoders.encoding import embed_all
from stssad.scoring.contamination import contamination
from stssad.scoring.evidence import LEVEL
from stssad.scoring.gaussian import GaussianDensity
from stssad.scoring.threshold import threshold_for
from stssad.settings import Reading
from stssad.testbeds.synthetic import planted_patch, texture_crops
from stssad.testbeds.testbed import find_testbed

pytestmark = pytest.mark.slow

COMMAND = str(Path(sys.executable).with_name("stssad"))
SMALL = Settings.quick(image_size=32, width=8, warm_start_epochs=10, max_iterations=20)
QUICKER = PretrainedSettings(max_iterations=2, smoothing=2)  # the score doesn't feel it
DATA = os.environ.get("STSSAD_DATA")
NINE = "AE,D-SVDD,RS-CO,RD-CO,RS-CP,RD-CP,RS-CD,RD-CD,ST-SSAD"
PRETRAINED_WORDS = "--preset imagenet --protocol inductive --contamination 0.1"
BASELINE_WORDS = f"{PRETRAINED_WORDS} --seeds 3 --methods Frozen,PatchCore"
CATEGORIES = ("tile", "bottle", "hazelnut", "mtd", "screw")


def fitted(seed: int) -> STSSAD:
    task = planted_patch(0.04, texture="gravel", image_size=32, n_train=300, seed=seed)
    return STSSAD("paper", CutDiff(sizes=[0.02]), settings=SMALL, seed=seed).fit(
        task.train, task.pool
    )


@pytest.fixture(scope="module")
def models() -> list[STSSAD]:
    return [fitted(seed) for seed in range(4)]


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.2])
def test_false_alarms_on_fresh_textures_are_as_wanted(models: list[STSSAD], rate: float) -> None:
    """Within the error of having 60 held-out images a seed and 4 seeds."""
    rates = []
    for seed, model in enumerate(models):
        generator = torch.Generator().manual_seed(100 + seed)
        fresh = model.decision_function(texture_crops("gravel", 500, 32, generator))
        threshold = threshold_for(model.normal_scores_, rate, model.model_.scorer.floor)
        rates.append(float(np.mean(fresh > threshold)))
    n_held_out = len(models) * len(models[0].normal_scores_)
    low, high = binom.ppf([0.005, 0.995], n_held_out, rate) / n_held_out
    assert low - 1 / len(models[0].normal_scores_) <= np.mean(rates) <= high, rates


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.4])
def test_contamination_interval_covers_the_truth_on_textures(
    models: list[STSSAD], share: float
) -> None:
    covered = 0
    for seed, model in enumerate(models):
        task = planted_patch(
            0.04, texture="gravel", image_size=32, n_train=1, n_pool=200, contamination=share,
            seed=200 + seed,
        )  # fmt: skip
        found = contamination(model.decision_function(task.pool), model.normal_scores_)
        covered += found.low <= share <= found.high
    assert covered >= len(models) - 1


def peak_memory_of_scoring(run: Path, listing: Path) -> int:
    """Of a child process, in bytes."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    words = [sys.executable, "-c", code, COMMAND, "score", str(run), str(listing)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return 1024 * int(done.stdout)


def test_memory_stays_flat_while_scoring_twenty_thousand_files(
    models: list[STSSAD], tmp_path: Path
) -> None:
    models[0].save(tmp_path / "run")
    rng = np.random.default_rng(0)
    files = []
    for i in range(20_000):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), np.uint8)).save(
            files[-1], compress_level=1
        )
    peaks = []
    for n in (1_000, 20_000):
        (tmp_path / "list.txt").write_text("".join(f"{path}\n" for path in files[:n]))
        peaks.append(peak_memory_of_scoring(tmp_path / "run", tmp_path / "list.txt"))
    assert peaks[1] < 1.05 * peaks[0] + 10e6, peaks


@pytest.mark.skipif(DATA is None, reason="set STSSAD_DATA to a folder with mvtec/bottle and tile")
@pytest.mark.parametrize("category,n_normal,n_pool", [("bottle", 209, 83), ("tile", 230, 117)])
def test_real_images_go_through_the_command_line(
    tmp_path: Path, category: str, n_normal: int, n_pool: int
) -> None:
    assert DATA is not None
    root, out = Path(DATA) / "mvtec" / category, tmp_path / category
    if not root.is_dir():
        pytest.skip(f"{root} isn't there")
    words = ["fit", "--normal", root / "train" / "good", "--unlabeled", root / "test", "--out", out,
             "--method", "paper", "--image-size", 32, "--width", 8,
             "--warm-start-epochs", 8, "--max-iterations", 10, "--smoothing", 5]  # fmt: skip
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert f"{n_normal} normal and {n_pool} unlabeled images" in done.stdout
    with open(out / "scores.csv", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == n_pool
    assert (out / "report.html").stat().st_size > 100_000
    scored = subprocess.run(
        [COMMAND, "score", out, root / "test" / "good", "--out", tmp_path / "s.csv"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "images scored" in scored.stdout


@pytest.mark.skipif(DATA is None, reason="STSSAD_DATA names no folder of real images")
@pytest.mark.parametrize(
    "words",
    [
        f"tile --methods {NINE},RS4-CD",
        "tile --seeds 3 --methods RS-CD,RD-CD,ST-SSAD",
        "tile --seeds 3 --methods ST-SSAD --protocol inductive",
        "tile --methods MMD1,MMD2,FO",
        "svhn --methods ST-SSAD --seeds 3",
        "svhn --methods RS-RO --seeds 20",
        "svhn --methods RD-RO,RS4-RO --seeds 5",
        "demonstrative",
        *(f"{each} {PRETRAINED_WORDS} --seeds 3 --methods ST-SSAD+" for each in CATEGORIES),
        *(f"{each} {BASELINE_WORDS}" for each in CATEGORIES[:-1]),
        *(f"{each} {BASELINE_WORDS} --change image_size=128" for each in CATEGORIES[:-1]),
    ],
)
def test_committed_results_are_of_these_images_and_settings(words: str) -> None:
    results = Path(__file__).parent.parent / "results"
    done = subprocess.run(
        [COMMAND, "bench", "run", *words.split(), "--dry-run", "--results", str(results)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(": 0 to run")


RANDOM_CHOICE = ("RS-RO", "RD-RO", "RS4-RO")
RESULTS = Store(Path(__file__).parent.parent / "results")


@pytest.mark.skipif(DATA is None, reason="STSSAD_DATA names no folder of real images")
def test_the_default_does_not_fall_below_the_encoder_alone() -> None:
    """On some of the hardest of the real tasks at hand; the committed results have all."""
    assert DATA is not None
    gained = []
    for category, defect in (("tile", "rough"), ("hazelnut", "cut"), ("mtd", "fray")):
        bed = find_testbed(category, Path(DATA))
        task = bed.load(defect, "imagenet", Reading(256), "inductive", 0, 0.1)
        model = STSSAD(jobs=2, settings=QUICKER).fit(task.train, task.pool)
        Z_trn, Z = (embed_all(model.model_.encoder, x) for x in (task.train, task.test))
        alone = GaussianDensity().fit(Z_trn).score(Z)
        ours = task.auc(model.decision_function(task.test))
        gained.append(ours - task.auc(alone.numpy()))
    assert np.mean(gained) >= -0.005, gained


def mean_of(lines: list[Line], value: str | None = None) -> float:
    """Over tasks, of the mean over seeds."""
    tasks = {(x.cell.testbed, x.cell.task) for x in lines}
    return float(np.mean([
        np.mean([x.auc if value is None else x.details[value] for x in lines
                 if (x.cell.testbed, x.cell.task) == task])
        for task in tasks
    ]))  # fmt: skip


def compared(method: str, **changes: object) -> list[Line]:
    """Committed lines of all categories but screw: inductive, a tenth of the pool anomalous."""
    return [
        x for category in CATEGORIES[:-1] for x in RESULTS.lines(category)
        if (x.cell.method, x.cell.protocol, x.cell.contamination, x.cell.changes)
        == (method, "inductive", 0.1, changes)
    ]  # fmt: skip


def asked(share: float = 0.1, mixed: bool = False, **changes: object) -> list[Line]:
    """Committed lines of robustness, of all categories but screw."""
    return [
        x for x in RESULTS.lines("robustness")
        if x.cell.contamination == share and x.cell.changes == changes
        and x.cell.task.endswith("all kinds") is mixed and not x.cell.task.startswith("screw")
    ]  # fmt: skip


def test_committed_results_meet_what_we_promise() -> None:
    """Seventeen tasks, three seeds: ours, the same score untuned, and others at both sizes."""
    ours = compared("ST-SSAD+")
    tasks = {(x.cell.testbed, x.cell.task) for x in ours}
    assert len(tasks) == 17 and len(ours) == 51
    assert mean_of(ours) >= 0.985
    for method in ("PatchCore", "Frozen"):
        for changes in ({}, {"image_size": 128}):
            theirs = compared(method, **changes)
            assert len(theirs) == 51 and mean_of(ours) >= mean_of(theirs)
    for task in tasks:
        mine = [x for x in ours if (x.cell.testbed, x.cell.task) == task]
        assert mean_of(mine) >= mean_of(mine, "auc untuned") - 0.01, task


def test_committed_results_meet_the_bar_on_magnetic_tiles() -> None:
    assert mean_of([x for x in compared("ST-SSAD+") if x.cell.testbed == "mtd"]) >= 0.955


def test_committed_results_hold_in_other_light() -> None:
    for light in ("20 % darker", "20 % brighter"):
        lines = asked(light=light)
        same = [x for x in asked() if x.cell.seed in {y.cell.seed for y in lines}]
        assert len({x.cell.task for x in lines}) == 17
        assert mean_of(lines) >= mean_of(same) - 0.01
        assert mean_of(lines, "flagged 1 %") <= 0.03


def test_committed_results_hold_on_pools_that_mix_all_kinds() -> None:
    for share in (0.1, 0.3):
        for category in ("tile", "hazelnut"):
            lines = [x for x in asked(share, mixed=True) if x.cell.task.startswith(category)]
            assert len(lines) == 3
            assert mean_of(lines) >= 0.99 and mean_of(lines, "found 1 %") >= 0.85


def test_committed_intervals_cover_and_clean_pools_are_called_clean() -> None:
    for share, least in ((0.1, 0.85), (0.3, 0.85)):
        covered = [
            x.details["contamination low"] <= x.details["anomalous"]
            <= x.details["contamination high"] for x in asked(share)
        ]  # fmt: skip
        assert len(covered) >= 17 and np.mean(covered) >= least
    claims = [1 - x.details["looks clean"] for x in asked(0.0)]
    assert len(claims) >= 17 and sum(claims) <= binom.ppf(0.99, len(claims), 0.05)


def test_committed_clean_pools_give_no_evidence() -> None:
    """At the level used, over pools of several sizes and in several lights."""
    found = [x.details["p"] for x in RESULTS.lines("clean")]
    assert len(found) >= 300 and np.mean(np.array(found) <= LEVEL) <= 0.01


@pytest.mark.parametrize("category,least", [("tile", 0.95), ("bottle", 0.975)])
def test_committed_anomaly_maps_are_as_good_as_patchcores(category: str, least: float) -> None:
    lines = RESULTS.lines("pixels")
    theirs, ours = (
        np.mean([x.auc for x in lines if (x.cell.task, x.cell.method) == (category, name)])
        for name in ("PatchCore", "ST-SSAD+")
    )
    assert ours >= least and ours >= theirs - 0.005


def test_committed_results_on_tile_are_ahead_of_random_choice() -> None:
    """First or second of the paper's nine methods over three seeds, few restarts collapsed."""
    lines = [x for x in RESULTS.lines("tile") if Selection().holds(x.cell)]
    grid = grid_for("1", lines, paper_table(1))
    means = {m: np.mean([grid.mean(t, m) for t in grid.tasks]) for m in NINE.split(",")}
    assert len(means) == 9 and len(grid.tasks) == 5 and min(grid.seeds("ST-SSAD")) == 3
    assert sorted(means.values(), reverse=True).index(means["ST-SSAD"]) < 2, means
    assert means["ST-SSAD"] >= 0.78
    collapsed = [s["collapsed"] for x in lines if x.cell.method == "ST-SSAD" for s in x.starts]
    assert np.mean(collapsed) <= 1 / 3


def test_committed_results_on_svhn_are_ahead_of_random_choice() -> None:
    """On the twelve tasks that no setting was compared on, and over all eighteen."""
    lines = RESULTS.lines("svhn")
    kept = [x for x in lines if Selection().holds(x.cell)]
    grid = grid_for("2", kept, paper_table(2))
    judging = task_groups(grid)["judging"]
    assert len(judging) == 12 and len(grid.tasks) == 18
    means = {m: np.mean([grid.mean(t, m) for t in judging]) for m in ("ST-SSAD", *RANDOM_CHOICE)}
    assert means["ST-SSAD"] >= means["RS-RO"] + 0.05, means
    assert means["ST-SSAD"] >= means["RD-RO"] + 0.02, means
    assert means["ST-SSAD"] > means["RS4-RO"], means
    for method in ("RS-RO", "RD-RO"):
        assert p_value(*grid.task_means(method, judging)) < 0.05
    assert np.mean(grid.means("ST-SSAD")) >= 0.77
    seeds = {m: min(grid.seeds(m)) for m in means}
    assert seeds["ST-SSAD"] >= 3 and all(seeds[m] >= 5 for m in RANDOM_CHOICE)
