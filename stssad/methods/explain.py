"""What kind of anomaly does the pool hold? Augmentation types are tuned to it by shift alignment,
the best is chosen by J, and tested on images that its tuning hasn't seen.

It scores nothing: a fit has its scores before this begins, and may do without.
"""

import torch
from torch import Tensor, nn

from ..encoders.encoding import as_floats
from ..encoders.features import Features, NormalFeatures
from ..encoders.resize import area_resized
from ..settings import PretrainedSettings
from ..tuning.restarts import run_all
from .evidence import weigh
from .frozen_restart import FrozenRestart, TuningData
from .problem import Explanation, FitProblem


def explain_by_tuning(
    problem: FitProblem, encoder: nn.Module, train: Tensor, normal: NormalFeatures, pool: Features
) -> Explanation:
    """Every initial value of every augmentation type, the best by J, and the evidence for it."""
    data = make_tuning_data(problem, train, normal, pool)
    restarts = make_restarts(problem, encoder, data)
    results = run_all(restarts, problem.jobs, problem.progress)
    best = max(results, key=lambda result: result.shift.alignment)
    evidence = weigh(
        restarts, data, best.shift.alignment, problem.seed, problem.jobs, problem.progress
    )
    chosen = best.candidate.number
    candidates = [result.candidate for result in results]
    return Explanation(candidates, chosen, restarts[chosen].augmentation, evidence)


def make_tuning_data(
    problem: FitProblem, train: Tensor, normal: NormalFeatures, pool: Features
) -> TuningData:
    """Smaller images, where they are large: tuning looks at thousands of them."""
    settings = problem.choices.settings
    assert isinstance(settings, PretrainedSettings)
    if pool.small is None:
        return TuningData.of(train, normal, pool.pooled)
    small = resize_all(train, settings.tuning_size)
    return TuningData.of(small, normal.small, pool.small.pooled)


def resize_all(images: Tensor, size: int) -> Tensor:
    """Any number of images at that size, stored as they were: there may be thousands."""
    if images.dtype != torch.uint8:
        return area_resized(images, size)
    cpu = torch.device("cpu")
    chunks = (255 * area_resized(as_floats(c, cpu), size) for c in torch.split(images, 64))
    return torch.cat([chunk.round().to(torch.uint8) for chunk in chunks])


def make_restarts(problem: FitProblem, encoder: nn.Module, data: TuningData) -> list[FrozenRestart]:
    """One for each initial value of each augmentation type."""
    choices = problem.choices
    assert isinstance(choices.settings, PretrainedSettings)
    initial = [(each, a) for each in choices.augmentations for a in each.initial_values()]
    return [
        FrozenRestart(
            number=number,
            initial_a=a,
            augmentation=augmentation,
            encoder=encoder,
            data=data,
            settings=choices.settings,
            val_loss=choices.val_loss,
            seed=problem.seed,
            checkpoints=problem.checkpoints,
        )
        for number, (augmentation, a) in enumerate(initial)
    ]
