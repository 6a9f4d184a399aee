"""Five planted patch sizes, all tuned from the same initial size: is each size recovered?

    python examples/planted_sizes.py [--initial 0.001] [--contamination 0.5] [--seed 0]

As in the paper's Fig. 4c, on texture crops instead of MVTec's carpet.
"""

import argparse
import time

from joblib import Parallel, delayed

from stssad import STSSAD, CutDiff, Settings
from stssad.experiments.testbeds.synthetic import planted_patch

SIZES = (0.01, 0.02, 0.04, 0.08, 0.16)


def tuned(size: float, args: argparse.Namespace) -> tuple[dict[str, float], float, float]:
    """The learned patch, the AUROC on the pool, and the time in seconds."""
    began = time.perf_counter()
    task = planted_patch(
        size, texture=args.texture, contamination=args.contamination, seed=args.seed
    )
    augmentation = CutDiff(sizes=args.initial)
    model = STSSAD("paper", augmentation, settings=Settings.quick(), seed=args.seed)
    model.fit(task.train, task.pool)
    auroc = task.auc(model.decision_function(task.test))
    return model.learned_, auroc, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--initial", type=float, nargs="+", default=[0.001])
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES)
    parser.add_argument("--contamination", type=float, default=0.5)
    parser.add_argument("--texture", default="grass")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    rows = Parallel(n_jobs=args.jobs, return_as="generator")(
        delayed(tuned)(size, args) for size in args.sizes
    )
    initial = ", ".join(f"{size:g}" for size in args.initial)
    share = f"{100 * args.contamination:g} % of the pool patched"
    print(f"initial size {initial}; {args.texture}, seed {args.seed}, preset quick, {share}")
    print("planted   learned   factor   aspect   AUROC   seconds")
    learned = []
    for size, (patch, auroc, seconds) in zip(args.sizes, rows, strict=True):
        learned.append(patch["size"])
        factor = max(patch["size"] / size, size / patch["size"])
        numbers = f"{factor:9.2f}{patch['aspect']:9.2f}{auroc:8.3f}{seconds:10.0f}"
        print(f"{size:7.2f}{patch['size']:10.4f}{numbers}", flush=True)
    print("in the right order:", "yes" if learned == sorted(learned) else "no")


if __name__ == "__main__":
    main()
