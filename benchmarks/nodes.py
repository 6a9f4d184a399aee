"""Two nodes of one CPU against one, and a whole fit against an older one, measured."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import Ratio, ratio_of, seconds
from serving import N_FILES, a_run, save

SCRIPT = Path(__file__).parent.parent / "tests/ray_scoring.py"
OLDER = "884f30b"  # the last commit whose default looked at 128 px
COPIES = 10  # of each file, so that starting the actors and the last parts don't weigh
PART = 60  # images


def images_a_second(folder: Path, source: Path, n_nodes: int, out: Path) -> float:
    """From when a fifth is done, and every actor has begun, to the last part; in a network of its
    own."""
    words = ["same", folder / "runs/run", source, out, n_nodes, PART]
    alone = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    command = [*alone, sys.executable, str(SCRIPT), *map(str, words)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
    )
    line = next(x for x in done.stdout.splitlines() if x.startswith('{"found"'))
    counts = [(at, n) for at, n in json.loads(line)["found"]["done"] if n > 0]
    last, n_last = counts[-1]
    first, n_first = next((at, n) for at, n in counts if n >= n_last / 5)
    return (n_last - n_first) / (last - first)


def nodes_speedup(repeats: int = 3) -> dict[str, Any]:
    pairs = []
    with a_run() as folder:
        source = folder / "many"
        source.mkdir()
        for path in (folder / "new").iterdir():
            for k in range(COPIES):
                os.link(path, source / f"{k}-{path.name}")
        for k in range(repeats):
            one = images_a_second(folder, source, 1, folder / f"one-{k}")
            two = images_a_second(folder, source, 2, folder / f"two-{k}")
            pairs.append((two, one))
    return plain(ratio_of(pairs), f"{COPIES * N_FILES} PNG files of 256 px, images a second")


def fit_of(code: Path, folder: Path, out: Path) -> None:
    """`stssad fit` of the package in a folder, as it comes."""
    words = [
        "fit",
        "--normal",
        folder / "good",
        "--unlabeled",
        folder / "pool",
        "--out",
        out,
        "--quiet",
    ]
    start = [sys.executable, "-c", "from stssad.cli import main; main()"]
    where = {"cwd": code, "env": {**os.environ, "PYTHONPATH": str(code)}}
    subprocess.run([*start, *map(str, words)], check=True, capture_output=True, **where)


def fit_vs_older_time(repeats: int = 3) -> dict[str, Any]:
    """A default fit at 256 px, over the one that was the default before, at 128 px in torch."""
    here, pairs = Path(__file__).parent.parent, []
    with tempfile.TemporaryDirectory() as made:
        folder, older = Path(made), Path(made) / "older"
        save(folder / "good", 230, 0)
        save(folder / "pool", 60, 1)
        archive = subprocess.run(
            ["git", "archive", OLDER], cwd=here, check=True, capture_output=True
        ).stdout
        older.mkdir()
        subprocess.run(["tar", "-x", "-C", str(older)], input=archive, check=True)
        for k in range(repeats):
            now = seconds(lambda: fit_of(here, folder, folder / f"now-{k}"))  # noqa: B023
            then = seconds(lambda: fit_of(older, folder, folder / f"then-{k}"))  # noqa: B023
            pairs.append((now, then))
    return plain(ratio_of(pairs), "230 + 60 images of 256 px, whole commands")


def plain(found: Ratio, setting: str) -> dict[str, Any]:
    return {
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "pairs": found.pairs,
        "setting": setting,
    }


NODES: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "nodes_speedup": (nodes_speedup, ">= 1.7"),
    "fit_vs_older_time": (fit_vs_older_time, "<= 1"),
}
