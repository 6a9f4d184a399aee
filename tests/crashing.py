"""kill -9 at random moments of fit, score, report and bench: what is run again ends as unbroken.

python tests/crashing.py --moments 20 --seed 0        (make crash)
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from small_run import TINY, make_folders

COMMAND = str(Path(sys.executable).with_name("stssad"))
LONGER = ["--warm-start-epochs", "12", "--max-iterations", "14", "--final-updates", "20"]


@dataclass(frozen=True)
class Story:
    """A command in a folder, how it is begun again, and what must come out."""

    name: str
    words: Callable[[Path], list[object]]
    again: Callable[[Path], list[object]]
    result: Callable[[Path], Any]


def fit_words(jobs: int) -> Callable[[Path], list[object]]:
    return lambda folder: [
        "fit",
        "--normal",
        folder / "good",
        "--unlabeled",
        folder / "pool",
        "--out",
        folder / "run",
        "--jobs",
        jobs,
        *TINY,
        *LONGER,
    ]


def default_words(folder: Path) -> list[object]:
    """The pretrained method, as short as it can be."""
    return [
        "fit",
        "--normal",
        folder / "good",
        "--unlabeled",
        folder / "pool",
        "--out",
        folder / "run",
        "--jobs",
        1,
        "--augmentation",
        "patch",
        "--max-iterations",
        4,
        "--val-augmented-samples",
        4,
    ]


def default_again(folder: Path) -> list[object]:
    begun = (folder / "run" / "environment.json").is_file()
    return [*default_words(folder), *(["--resume"] if begun else [])]


def resumed(jobs: int) -> Callable[[Path], list[object]]:
    def words(folder: Path) -> list[object]:
        begun = (folder / "run" / "environment.json").is_file()
        return [*fit_words(jobs)(folder), *(["--resume"] if begun else [])]

    return words


def run_content(folder: Path) -> Any:
    """All of a run that doesn't tell of the time or the folder."""
    left = sorted(p.name for p in (folder / "run").iterdir())
    tensors = (folder / "run" / "model.safetensors").read_bytes()
    scores = [
        line.rsplit("/", 1)[1] for line in (folder / "run" / "scores.csv").read_text().split()[1:]
    ]
    return left, tensors, scores


def score_words(folder: Path) -> list[object]:
    return ["score", folder / "run", folder / "pool", "--out", folder / "s.csv"]


def report_words(folder: Path) -> list[object]:
    return ["report", folder / "run"]


def bench_words(folder: Path) -> list[object]:
    small = ("width=4", "warm_start_epochs=1", "max_iterations=2", "smoothing=1")
    changes = [word for each in small for word in ("--change", each)]
    return [
        "bench",
        "run",
        "demonstrative",
        "--tasks",
        "0.04/1,0.16/1",
        "--methods",
        "ST-SSAD,RS-CD",
        "--results",
        folder / "results",
        "--jobs",
        "2",
        *changes,
    ]


def bench_content(folder: Path) -> Any:
    lines = map(json.loads, (folder / "results" / "demonstrative.jsonl").read_text().splitlines())
    return sorted((x["task"], x["method"], x["auc"]) for x in lines)


STORIES = [
    Story("fit, one process", fit_words(1), resumed(1), run_content),
    Story("fit, two processes", fit_words(2), resumed(2), run_content),
    Story("fit, pretrained", default_words, default_again, run_content),
    Story("score", score_words, score_words, lambda f: names_and_scores(f)),
    Story("report", report_words, report_words, lambda f: (f / "run" / "report.html").read_text()),
    Story("bench, two processes", bench_words, bench_words, bench_content),
]


def names_and_scores(folder: Path) -> Any:
    left = [p.name for p in folder.glob(".*.tmp")]
    rows = (folder / "s.csv").read_text().split()[1:]
    return left, [row.rsplit("/", 1)[1] for row in rows]


def called(words: list[object]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)


def prepare(story: Story, folder: Path, fitted: Path) -> None:
    make_folders(folder)
    if story.name in ("score", "report"):
        shutil.copytree(fitted / "run", folder / "run")


def kill_after(words: list[object], seconds: float) -> None:
    process = subprocess.Popen(
        [COMMAND, *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def crash(moments: int, seed: int, say: Callable[[str], None] = lambda words: None) -> None:
    """Every story, killed at so many moments; raises at the first that doesn't end as it should."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        fitted = make_folders(root / "fitted")
        done = called(fit_words(1)(fitted))
        assert done.returncode == 0, done.stderr
        for story in STORIES:
            slug = story.name.replace(",", "").replace(" ", "-")
            whole = root / f"{slug}-whole"
            prepare(story, whole, fitted)
            began = time.monotonic()
            done = called(story.words(whole))
            assert done.returncode == 0, f"{story.name}: {done.stderr}"
            lasted, wanted = time.monotonic() - began, story.result(whole)
            for moment in range(moments):
                folder = root / f"{slug}-{moment}"
                prepare(story, folder, fitted)
                after = rng.uniform(0, lasted)
                kill_after(story.words(folder), after)
                done = called(story.again(folder))
                words = f"{story.name}, killed after {after:.2f} of {lasted:.2f} s"
                assert done.returncode == 0, f"{words}: {done.stderr}"
                assert story.result(folder) == wanted, f"{words}: another result"
                shutil.rmtree(folder)
            say(f"{story.name}: {moments} kills, all ended as unbroken")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    crash(wanted.moments, wanted.seed, lambda words: print(words, flush=True))


if __name__ == "__main__":
    main()
