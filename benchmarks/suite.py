"""Speed and memory, as ratios: `make bench`, or `python benchmarks/suite.py [KEY ...]`.

Prints a table and writes benchmarks/results.json after each measurement, so that a run of some keys
only replaces those; `--table` prints them as Markdown. Times are medians of interleaved pairs; the
range of the pairs stands beside.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from browsing import BROWSING
from cases import Case, make_case, naive, ours, with_higher, with_torchopt
from joblib import Parallel, delayed
from measure import Ratio, peak_memory, ratio_of, seconds, time_ratio
from nodes import NODES
from PIL import Image
from serving import SERVING

from stssad import STSSAD, CutDiff, ResNet18, Settings
from stssad.encoders.detector import Detector
from stssad.experiments.testbeds.synthetic import planted_patch, texture_crops
from stssad.experiments.testbeds.task import Task
from stssad.images.decode import read_image
from stssad.images.source import decoded, find_images
from stssad.parallel.threads import torch_threads
from stssad.runs.environment import environment
from stssad.runs.predictions import score_files, skip_unreadable, write_predictions
from stssad.tuning.problem import TuningProblem
from stssad.tuning.tuner import TunerState, initial_state, warm_start
from stssad.tuning.val_loss import mean_distance_loss

RESULTS = Path(__file__).with_name("results.json")
PAPER = {"n_pool": 117, "size": 128, "width": 64}  # 32+32, 256/256/117
SMALL = {"n_pool": 117, "size": 64, "width": 32}
GRID = 4 * 5 * 3  # areas x aspects x angles


def plain(ratio: Ratio, setting: str) -> dict[str, Any]:
    return {**asdict(ratio), "setting": setting}


def exact_vs_naive_time() -> dict[str, Any]:
    case = make_case(**PAPER)
    ratio = time_ratio(lambda: ours(case), lambda: naive(case), repeats=3)
    return plain(ratio, "128 px, width 64, 32+32, 256/256/117, 2 threads")


def exact_vs_naive_memory() -> dict[str, Any]:
    words = [str(PAPER[k]) for k in ("n_pool", "size", "width")]
    pairs = [(float(peak_memory("exact", *words)), float(peak_memory("naive", *words)))]
    return plain(ratio_of(pairs), "as above; peak of the whole process, bytes")


def exact_vs_first_order_time() -> dict[str, Any]:
    case = make_case(**PAPER)
    ratio = time_ratio(lambda: ours(case), lambda: ours(case, "first_order"), repeats=3)
    return plain(ratio, "128 px, width 64, 32+32, 256/256/117, 2 threads")


def vs_library_time(library: Callable[[Case], object]) -> dict[str, Any]:
    case = make_case(**SMALL)
    ratio = time_ratio(lambda: ours(case), lambda: library(case), repeats=5)
    return plain(ratio, "64 px, width 32, 32+32, 256/256/117, 2 threads")


def memory_growth_8x() -> dict[str, Any]:
    size, width = "64", "32"
    pairs = [
        (
            float(peak_memory("exact", "936", size, width)),
            float(peak_memory("exact", "117", size, width)),
        )
    ]
    return plain(ratio_of(pairs), "64 px, width 32, 256/256/936 against 256/256/117")


def time_growth_8x() -> dict[str, Any]:
    eight, one = (
        make_case(936, 64, 16, n_train=32, n_augmented=32),
        make_case(117, 64, 16, n_train=32, n_augmented=32),
    )
    ratio = time_ratio(lambda: ours(eight), lambda: ours(one), repeats=5)
    return plain(ratio, "64 px, width 16, 32/32/936 against 32/32/117")


def parallel_starts_speedup() -> dict[str, Any]:
    task = planted_patch(0.04, texture="grass")
    settings = Settings.quick(warm_start_epochs=10, max_iterations=15, smoothing=5)
    of_a_restart: dict[int, list[float]] = {1: [], 2: []}  # seconds, by threads

    def fit(jobs: int, threads: int) -> None:
        model = STSSAD("paper", settings=replace(settings, threads=threads), jobs=jobs)
        model.fit(task.train, task.pool)
        of_a_restart[threads] += [c.seconds for c in model.candidates_]

    ratio = time_ratio(lambda: fit(1, 2), lambda: fit(2, 1), repeats=3)
    facts = plain(ratio, "preset quick, 10 warm-start epochs, 15 iterations, four restarts")
    one, two = (statistics.median(of_a_restart[threads]) for threads in (1, 2))
    return {**facts, "seconds_of_a_restart_with_one_thread": one, "with_two_threads": two}


def our_fit() -> tuple[float, float, float]:
    """Seconds, learned area and AUROC of a fit at preset quick, two jobs, on a planted 0.04."""
    task = planted_patch(0.04, texture="grass")
    began = time.perf_counter()
    model = STSSAD("paper", settings=Settings.quick(), jobs=2).fit(task.train, task.pool)
    took = time.perf_counter() - began
    return took, model.learned_["size"], task.auc(model.decision_function(task.test))


def paper_fit(quick: Settings) -> tuple[float, float]:
    """Learned area and AUROC of the paper's loop: by our step, which equals the naive one."""
    settings = Settings(image_size=quick.image_size, width=quick.width, chunk_size=1024)
    task = planted_patch(0.04, texture="grass")
    model = STSSAD("paper", settings=settings, jobs=2).fit(task.train, task.pool)
    return model.learned_["size"], task.auc(model.decision_function(task.test))


def untrained(task: Task, settings: Settings, seed: int = 0) -> tuple[TuningProblem, TunerState]:
    """One restart before its warm start."""
    detector, augmentation = Detector(ResNet18(settings.width), settings.image_size), CutDiff()
    problem = TuningProblem(
        detector, augmentation, mean_distance_loss, task.train, task.pool, settings
    )
    return problem, initial_state(problem, augmentation.initial_values()[2], seed)


def fit_vs_paper_loop_time() -> dict[str, Any]:
    """Against four restarts one by one, each 20 epochs and 500 naive iterations at 256/256/all."""
    took, area, auc = our_fit()
    quick, task = Settings.quick(), planted_patch(0.04, texture="grass", n_train=256)
    loop_size, loop_auc = paper_fit(quick)
    case = make_case(128, quick.image_size, quick.width)
    naive(case)
    per_iteration = sorted(seconds(lambda: naive(case)) for _ in range(5))[2]
    problem, state = untrained(task, replace(quick, warm_start_epochs=1))
    epoch = seconds(lambda: warm_start(problem, state))
    loop = 4 * (20 * epoch + 500 * per_iteration)
    facts = plain(ratio_of([(took, loop)]), "64 px, width 16; the loop's time is multiplied out")
    note = {"seconds_per_naive_iteration": per_iteration, "seconds_per_epoch": epoch}
    return {
        **facts,
        **note,
        "our_size": area,
        "planted_size": 0.04,
        "our_auc": auc,
        "loop_size": loop_size,
        "loop_auc": loop_auc,
    }


def grid_model(seed: int) -> None:
    """As many θ updates as one of our restarts makes: 40 epochs, and 60 more."""
    task, settings = planted_patch(0.04, texture="grass", n_train=192, seed=seed), Settings.quick()
    extra = settings.max_iterations / (192 / settings.batch_size)
    settings = replace(settings, warm_start_epochs=settings.warm_start_epochs + round(extra))
    with torch_threads(1):
        warm_start(*untrained(task, settings, seed))


def tuning_vs_grid_time() -> dict[str, Any]:
    """Two models of the grid at a time, as two of our restarts run at a time."""
    took, _, _ = our_fit()
    parallel = Parallel(n_jobs=2)
    two_models = seconds(lambda: parallel(delayed(grid_model)(seed) for seed in range(2)))
    facts = plain(ratio_of([(took, GRID / 2 * two_models)]), "the grid's time is multiplied out")
    return {**facts, "seconds_per_two_models": two_models, "n_models": GRID}


def score_throughput_ratio() -> dict[str, Any]:
    """(bare network + bare decoding) / from a folder to scores.csv, in one process."""
    settings = Settings.quick(warm_start_epochs=1, max_iterations=1, smoothing=1)
    task = planted_patch(0.04, texture="grass", n_train=40)
    model = STSSAD("paper", CutDiff(sizes=[0.01]), settings=settings).fit(task.train, task.pool)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "images"
        folder.mkdir()
        crops = texture_crops("grass", 1500, 256, torch.Generator().manual_seed(0), crop=256)
        for i, crop in enumerate(crops):
            pixels = (crop.permute(1, 2, 0) * 255).to(torch.uint8).numpy()
            Image.fromarray(pixels).save(folder / f"{i}.png")
        paths = find_images(folder)
        tensors = torch.randint(0, 256, (len(paths), 3, 64, 64), dtype=torch.uint8)

        def network() -> None:
            model.decision_function(tensors)

        def decoding() -> None:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda path: read_image(path, model.reading_), paths))

        def everything() -> None:
            with open(Path(name) / "scores.csv", "w") as file:
                scored = skip_unreadable(score_files(model, find_images(folder)), None)
                write_predictions((each.prediction for each in scored), file, "csv")

        list(decoded(paths[:50], model.reading_))
        pairs = []
        for _ in range(5):
            pairs.append((seconds(network) + seconds(decoding), seconds(everything)))
    return plain(ratio_of(pairs), "1500 PNG files of 256 px, preset quick, 2 threads")


def command_seconds(*words: str) -> dict[str, Any]:
    subprocess.run(words, check=True, capture_output=True)
    times = sorted(
        seconds(lambda: subprocess.run(words, check=True, capture_output=True)) for _ in range(7)
    )
    return {"value": times[3], "low": times[0], "high": times[-1], "setting": "seconds, warm"}


MEASURES: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "cli_help_seconds": (
        lambda: command_seconds(str(Path(sys.executable).with_name("stssad")), "--help"),
        "<= 0.5",
    ),
    "import_seconds": (lambda: command_seconds(sys.executable, "-c", "import stssad"), ""),
    "score_throughput_ratio": (score_throughput_ratio, ">= 0.9"),
    **SERVING,
    **BROWSING,
    **NODES,
    "memory_growth_8x": (memory_growth_8x, "<= 1.15"),
    "time_growth_8x": (time_growth_8x, "<= 8.5"),
    "parallel_starts_speedup": (parallel_starts_speedup, ">= 1.2"),
    "vs_higher_time": (lambda: vs_library_time(with_higher), ""),
    "vs_torchopt_time": (lambda: vs_library_time(with_torchopt), ""),
    "fit_vs_paper_loop_time": (fit_vs_paper_loop_time, "<= 0.25"),
    "tuning_vs_grid_time": (tuning_vs_grid_time, "<= 0.2"),
    "exact_vs_naive_memory": (exact_vs_naive_memory, "<= 0.35"),
    "exact_vs_naive_time": (exact_vs_naive_time, "<= 1"),
    "exact_vs_first_order_time": (exact_vs_first_order_time, "<= 3.2"),
}


def table(results: dict[str, Any]) -> None:
    """The results as Markdown, for docs/performance.md."""
    print("| key | value | range | bar | setting |\n|---|---|---|---|---|")
    for key in MEASURES:
        if key in results:
            r = results[key]
            spread = f"{r['low']:.3f} to {r['high']:.3f}"
            print(f"| `{key}` | {r['value']:.3f} | {spread} | {r['bar']} | {r['setting']} |")


def main() -> None:
    if sys.argv[1:] == ["--table"]:
        return table(json.loads(RESULTS.read_text()))
    warnings.filterwarnings("ignore", module="(higher|torchopt|torch).*")
    torch.set_num_threads(2)
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    print(f"{'key':28}{'value':>9}  {'range':>15}  {'bar':>8}")
    for key in sys.argv[1:] or MEASURES:
        measure, bar = MEASURES[key]
        found = measure()
        results[key] = {**found, "bar": bar}
        results["environment"] = {k: v for k, v in environment().items() if k != "machine"}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        spread = f"{found['low']:.3f}..{found['high']:.3f}"
        print(f"{key:28}{found['value']:9.3f}  {spread:>15}  {bar:>8}", flush=True)


if __name__ == "__main__":
    main()
