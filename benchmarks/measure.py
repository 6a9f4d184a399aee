"""Times and memory as ratios within one run: interleaved, repeated, medians with their spread."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ratio:
    """Median of the ratios of pairs measured one after the other, with the range of the pairs."""

    value: float
    low: float
    high: float
    pairs: list[tuple[float, float]]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def time_ratio(work: Callable[[], object], against: Callable[[], object], repeats: int) -> Ratio:
    """How long `work` takes, as a multiple of `against`; one of each first, to warm up."""
    work()
    against()
    return ratio_of([(seconds(work), seconds(against)) for _ in range(repeats)])


def ratio_of(pairs: list[tuple[float, float]]) -> Ratio:
    ratios = [a / b for a, b in pairs]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios), pairs)


def peak_memory(*words: str) -> int:
    """Bytes at the peak of `python benchmarks/cases.py WORDS`, a process of its own."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    case = str(Path(__file__).with_name("cases.py"))
    words = (sys.executable, "-c", code, sys.executable, case, *words)
    return 1024 * int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
