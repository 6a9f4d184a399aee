"""Five planted patch sizes, all tuned from the same initial area: is each size found?

    python examples/planted_sizes.py [--initial 0.001] [--contamination 0.5] [--seed 0]

As in the paper's Fig. 4c, on texture crops instead of MVTec's carpet. It prints what it gets.
"""

import argparse
import time

from joblib import Parallel, delayed

from stssad import STSSAD, CutDiff, Settings
from stssad.testbeds.synthetic import planted_patch

AREAS = (0.01, 0.02, 0.04, 0.08, 0.16)


def tuned(area: float, args: argparse.Namespace) -> tuple[dict[str, float], float, float]:
    """The learned patch, the AUROC on the pool, and the seconds it took."""
    began = time.perf_counter()
    task = planted_patch(
        area, texture=args.texture, contamination=args.contamination, seed=args.seed
    )
    augmentation = CutDiff(areas=args.initial)
    model = STSSAD("paper", augmentation, settings=Settings.quick(), seed=args.seed)
    model.fit(task.train, task.pool)
    auroc = task.auc(model.decision_function(task.test))
    return model.learned_, auroc, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--initial", type=float, nargs="+", default=[0.001])
    parser.add_argument("--areas", type=float, nargs="+", default=AREAS)
    parser.add_argument("--contamination", type=float, default=0.5)
    parser.add_argument("--texture", default="grass")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    rows = Parallel(n_jobs=args.jobs, return_as="generator")(
        delayed(tuned)(area, args) for area in args.areas
    )
    initial = ", ".join(f"{area:g}" for area in args.initial)
    share = f"{100 * args.contamination:g} % of the pool patched"
    print(f"initial area {initial}; {args.texture}, seed {args.seed}, preset quick, {share}")
    print("planted   learned   factor   aspect   AUROC   seconds")
    learned = []
    for area, (patch, auroc, seconds) in zip(args.areas, rows, strict=True):
        learned.append(patch["area"])
        factor = max(patch["area"] / area, area / patch["area"])
        numbers = f"{factor:9.2f}{patch['aspect']:9.2f}{auroc:8.3f}{seconds:10.0f}"
        print(f"{area:7.2f}{patch['area']:10.4f}{numbers}", flush=True)
    print("in the right order:", "yes" if learned == sorted(learned) else "no")


if __name__ == "__main__":
    main()
