"""Run by test_scale.py in a network of its own, with loopback only.

    python tests/ray_scoring.py same|kill RUN INPUT OUT

A cluster of two nodes scores the images; with `kill`, one of them is killed half-way. Prints JSON.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from stssad.scale.parts import Totals
from stssad.scale.scoring import ScoreRequest, score_on_ray


@contextmanager
def on_cpu(k: int) -> Iterator[None]:
    """What is started here has one CPU and no other, as a node of one CPU has."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(usual)[k % len(usual)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)


def main() -> None:
    what, run, source, out, n_nodes, part_size = sys.argv[1:]
    head = {"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
    with on_cpu(0):
        cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    others = []
    for k in range(1, int(n_nodes)):
        with on_cpu(k):
            others.append(cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1"))
    cluster.wait_for_nodes()
    request = ScoreRequest(Path(run), source, Path(out), part_size=int(part_size))
    done, killed, began = [], False, time.monotonic()
    for each in score_on_ray(request, cluster.address):
        if isinstance(each, Totals):
            totals = each
            break
        done.append((round(time.monotonic() - began, 2), each))
        if what == "kill" and each > 0 and not killed:
            killed = True
            cluster.remove_node(others[0], allow_graceful=False)
    alive = sum(node["Alive"] for node in ray.nodes())
    facts = {
        "n": totals.n,
        "flagged": totals.flagged,
        "unreadable": totals.unreadable,
        "done": done,
        "killed": killed,
        "alive": alive,
    }
    print(json.dumps({"found": facts}), flush=True)
    os._exit(0)  # else the exit code is that of the node that was killed


if __name__ == "__main__":
    main()
