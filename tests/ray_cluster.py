"""Run by test_cluster.py in a network of its own, with loopback only.

    python tests/ray_cluster.py same|kill RESULTS

same: three cells on a cluster of two nodes. kill: six, one of its nodes killed on the way.
Prints the results as JSON, by cell.
"""

import json
import sys
import time
from typing import Any

import ray
from ray.cluster_utils import Cluster

from stssad.experiments.bench.cell import Cell
from stssad.experiments.bench.cluster import run_on_ray
from stssad.experiments.bench.runner import make_units

CHANGES = {"width": 8, "warm_start_epochs": 1, "max_iterations": 2, "smoothing": 1}


def cells(n: int) -> list[Cell]:
    methods = ("RS-CD", "RS-CO", "ST-SSAD", "RD-CD", "RD-CO", "RS-CP")[:n]
    return [Cell("demonstrative", "0.16/1", name, 0, changes=CHANGES) for name in methods]


def n_alive(expected: int) -> int:
    """Nodes that live; the cluster takes a while to notice a loss."""
    for _ in range(120):
        alive = sum(node["Alive"] for node in ray.nodes())
        if alive == expected:
            break
        time.sleep(0.5)
    return alive


def main() -> None:
    what = sys.argv[1]
    cluster: Any = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.1"},
    )
    node = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    cluster.wait_for_nodes()
    todo = make_units(cells(3 if what == "same" else 6), None, None)
    found = {}
    for outcome in run_on_ray(todo, cluster.address):
        found |= {line.cell.key: line.auc for line in outcome.lines}
        if what == "kill" and len(found) == 1:  # the other node is at work
            cluster.remove_node(node, allow_graceful=False)
    print(json.dumps({"found": found, "alive": n_alive(1 if what == "kill" else 2)}))


if __name__ == "__main__":
    main()
