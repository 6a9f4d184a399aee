"""The arithmetic of docs/scale.md: what many images cost, from what one costs here.

python benchmarks/scale.py --decode-ms 6 --engine-ms 30 --kilobytes 90
"""

import argparse
from dataclasses import dataclass

NODE_CORES = 32
NETWORK = 1.2e9  # bytes a second into a node: 10 Gbit/s
STORAGE = 20e9  # bytes a second that the archive gives to all nodes together
ROW = 60  # bytes of a row in Parquet
HOURS = 24.0  # in which it should be done


@dataclass(frozen=True)
class Cost:
    """Of one image."""

    decode_ms: float
    engine_ms: float
    kilobytes: float

    @property
    def seconds(self) -> float:
        """Of one core."""
        return (self.decode_ms + self.engine_ms) / 1000

    @property
    def bytes(self) -> float:
        return 1000 * self.kilobytes


@dataclass(frozen=True)
class Plan:
    """How many images, on how many nodes, in which time."""

    n_images: float
    nodes: int
    hours: float
    bottleneck: str
    terabytes: float


def rates(cost: Cost, nodes: int) -> dict[str, float]:
    """Images a second that each stage allows."""
    return {
        "computing": nodes * NODE_CORES / cost.seconds,
        "network into the nodes": nodes * NETWORK / cost.bytes,
        "storage": STORAGE / cost.bytes,
    }


def plan(cost: Cost, n_images: float) -> Plan:
    """As few nodes as finish in time, if storage allows it at all."""
    wanted = n_images / (HOURS * 3600)
    nodes = 1
    while rates(cost, nodes)["computing"] < wanted and nodes < 10_000:
        nodes += 1
    allowed = rates(cost, nodes)
    stage = min(allowed, key=lambda name: allowed[name])
    hours = n_images / allowed[stage] / 3600
    return Plan(n_images, nodes, hours, stage, n_images * cost.bytes / 1e12)


def table(cost: Cost) -> str:
    lines = [
        "| images | nodes of 32 cores | hours | slowest stage | read | written |",
        "|---|---|---|---|---|---|",
    ]
    for n, name in ((1e6, "1 million"), (1e8, "100 million"), (1e10, "10 billion")):
        found = plan(cost, n)
        written = n * ROW / 1e9
        lines.append(
            f"| {name} | {found.nodes} | {found.hours:.1f} | {found.bottleneck} | "
            f"{found.terabytes:.3g} TB | {written:.3g} GB |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decode-ms", type=float, required=True)
    parser.add_argument("--engine-ms", type=float, required=True)
    parser.add_argument("--kilobytes", type=float, required=True)
    given = parser.parse_args()
    cost = Cost(given.decode_ms, given.engine_ms, given.kilobytes)
    print(f"one core: {1 / cost.seconds:.1f} images a second")
    print(table(cost))


if __name__ == "__main__":
    main()
