"""The same cells on a Ray cluster of two nodes of this machine, one of which may be lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stssad.experiments.bench.runner import Unit, run_unit

pytest.importorskip("ray", reason="Ray is in the extra `ray`")
from namespace import alone, needs_namespace
from ray_cluster import cells

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("ray_cluster.py")


def here(n: int) -> dict[str, float]:
    return {c.key: run_unit(Unit((c,), None, None)).lines[0].auc for c in cells(n)}


def on_ray(what: str) -> tuple[dict[str, float], int]:
    """AUC by cell, and how many nodes are left."""
    done = subprocess.run(
        alone([sys.executable, str(SCRIPT), what]),
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "RAY_worker_niceness": "0"},  # else other work starves Ray's
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (said,) = (x for x in done.stdout.splitlines() if x.startswith('{"found"'))  # Ray talks, too
    facts = json.loads(said)
    return facts["found"], facts["alive"]


@needs_namespace
def test_a_cluster_gives_the_same_auc() -> None:
    assert on_ray("same") == (here(3), 2)


@needs_namespace
def test_all_cells_arrive_when_a_node_is_lost() -> None:
    assert on_ray("kill") == (here(6), 1)
