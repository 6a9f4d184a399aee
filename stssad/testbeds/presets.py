"""The benchmark's settings by preset and testbed.

`cpu` has one set for each augmentation: minutes of one core for the four restarts of a cell.
What differs from the paper's settings, and what it brings, stands in docs/results.md.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from ..settings import AnySettings, PretrainedSettings, Settings

PRESETS = ("cpu", "paper", "imagenet")
# Settings were compared on these tasks, so that the others are the ones to judge by.
DEVELOPMENT = {"svhn": ("6/9", "6/2", "6/1", "2/0", "2/5", "2/7")}


def cpu_svhn(**changes: Any) -> Settings:
    """32 px and the paper's five θ updates for each of `a`.

    Noise of 35 degrees around the angle, or its first step is one of chance; the last state, then
    training at the angle that was learned, while α falls: score variance compares detectors fairly
    only where each has been trained at its own `a`.
    """
    settings = Settings(
        image_size=32,
        width=16,
        batch_size=64,
        warm_start_epochs=6,
        theta_updates=5,
        max_iterations=30,
        a_step_size=0.1,
        a_noise=0.6,
        end_state="last",
        final_updates=100,
        theta_decay=0.3,
        val_pool_samples=256,
        chunk_size=512,
        patience=30,
    )
    return replace(settings, **changes)


def cpu_cutdiff(**changes: Any) -> Settings:
    """MVTec AD and planted patches: 32 px. Otherwise `quick`, with steps so much larger that `a`
    can go as far; nothing is held out."""
    usual = {"image_size": 32, "holdout_share": 0.0, "max_iterations": 40, "a_step_size": 0.375}
    return Settings.quick(**{**usual, **changes})


def is_demonstrative(testbed: str) -> bool:
    """`demonstrative` on textures, `demonstrative-NAME` on a folder of that name."""
    return testbed.partition("-")[0] == "demonstrative"


def preset_settings(testbed: str, preset: str, **changes: Any) -> AnySettings:
    """A preset's, for a testbed."""
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r} for a benchmark; use {', '.join(PRESETS)}")
    presets: dict[str, Callable[..., AnySettings]]
    if testbed == "svhn":
        presets = {"cpu": cpu_svhn, "paper": Settings.paper_svhn}
    else:
        presets = {"cpu": cpu_cutdiff, "paper": Settings.paper_mvtec}
    presets["imagenet"] = PretrainedSettings
    known = {f.name for f in fields(PretrainedSettings if preset == "imagenet" else Settings)}
    if unknown := changes.keys() - known:
        raise ValueError(
            f"the preset {preset!r} has no setting {sorted(unknown)[0]!r}; it has "
            f"{', '.join(sorted(known))}"
        )
    return presets[preset](**changes)
