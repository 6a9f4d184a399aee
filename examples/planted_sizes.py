"""Five planted patch sizes, all tuned from the same start: is each size found?

    python examples/planted_sizes.py [--start 0.001] [--texture grass] [--seed 0] [--jobs 2]

As in the paper's Fig. 4c, on texture crops instead of MVTec's carpet. It prints what it gets.
"""

import argparse
import math

import torch
from joblib import Parallel, delayed

from stssad import CutDiff, ResNet18, Settings
from stssad.detector import Detector
from stssad.scoring import GaussianDensity
from stssad.starts import Job, run_start
from stssad.testbeds.synthetic import planted_patch
from stssad.val_loss import mean_distance_loss

AREAS = (0.01, 0.02, 0.04, 0.08, 0.16)


def tuned(
    area: float, start: float, texture: str, seed: int
) -> tuple[dict[str, float], float, float]:
    """The learned patch, the AUC on the pool, and the seconds it took."""
    settings = Settings.quick()
    task = planted_patch(area, texture=texture, seed=seed)
    initial_a = torch.tensor([math.log(start), 0.0, 0.0])
    encoder = ResNet18(settings.width)
    job = Job(
        start=0, initial_a=initial_a, augmentation=CutDiff(), encoder=encoder, train=task.train,
        pool=task.pool, settings=settings, val_loss=mean_distance_loss, seed=seed, device="cpu",
    )  # fmt: skip
    finished = run_start(job)
    detector = Detector(encoder, settings.image_size)
    Z = detector.embed_all(finished.best.theta, finished.best.buffers, task.test)
    density: GaussianDensity = finished.density
    return CutDiff().describe(finished.best.a), task.auc(density.score(Z).numpy()), finished.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=float, default=0.001)
    parser.add_argument("--texture", default="grass")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    rows = Parallel(n_jobs=args.jobs, return_as="generator")(
        delayed(tuned)(area, args.start, args.texture, args.seed) for area in AREAS
    )
    print(
        f"start {args.start:g}, texture {args.texture}, seed {args.seed}, preset quick, 50 % of 128"
    )
    print("planted   learned   factor   aspect     AUC   seconds")
    learned = []
    for area, (patch, auc, seconds) in zip(AREAS, rows, strict=True):
        learned.append(patch["area"])
        factor = max(patch["area"] / area, area / patch["area"])
        print(
            f"{area:7.2f}{patch['area']:10.4f}{factor:9.2f}{patch['aspect']:9.2f}{auc:8.3f}"
            f"{seconds:10.0f}",
            flush=True,
        )
    print("in the right order:", "yes" if learned == sorted(learned) else "no")


if __name__ == "__main__":
    main()
