"""The benchmark's settings by preset and testbed.

`cpu` has one set for each augmentation: minutes of one core for the four restarts of a cell.
What differs from the paper's settings, and what it brings, stands in docs/results.md.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from ...settings import AnySettings, PretrainedSettings, Settings

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


# From the paper's smallest patch, as many pixels of 64 x 64 as it has of 256 x 256, to its
# largest, in equal steps of the logarithm: at 64 px the paper's smallest is less than a pixel.
SIZES_AT_64 = (0.0016, 0.0063, 0.025, 0.1)


def cpu_mvtec(**changes: Any) -> Settings:
    """64 px, four θ updates for each of `a`, as on SVHN: noise around the size, the last state,
    then training at what was learned.

    A third of the pool is anomalous, so that only with as many augmented images as training ones
    is L_val clearly less at the anomalies than at the identity (docs/paper-map.md).
    """
    settings = Settings(
        image_size=64,
        width=16,
        warm_start_epochs=20,
        theta_updates=4,
        max_iterations=40,
        a_step_size=0.2,
        a_noise=0.8,
        end_state="last",
        final_updates=200,
        theta_decay=0.3,
        val_train_samples=192,
        val_augmented_samples=192,
        chunk_size=256,
        smoothing=20,
        patience=40,
    )
    return replace(settings, **changes)


def cpu_planted(**changes: Any) -> Settings:
    """Planted patches: 32 px. Otherwise `quick`, with steps so much larger that `a` can go as far;
    nothing is held out."""
    usual = {"image_size": 32, "holdout_share": 0.0, "max_iterations": 40, "a_step_size": 0.375}
    return Settings.quick(**{**usual, **changes})


def pretrained_svhn(**changes: Any) -> PretrainedSettings:
    """The default on digits of 32 px, magnified as far as its encoder sees strokes."""
    return PretrainedSettings(**{"image_size": 128, **changes})


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
        cpu = cpu_planted if is_demonstrative(testbed) else cpu_mvtec
        presets = {"cpu": cpu, "paper": Settings.paper_mvtec}
    presets["imagenet"] = pretrained_svhn if testbed == "svhn" else PretrainedSettings
    known = {f.name for f in fields(PretrainedSettings if preset == "imagenet" else Settings)}
    if unknown := changes.keys() - known:
        raise ValueError(
            f"the preset {preset!r} has no setting {sorted(unknown)[0]!r}; it has "
            f"{', '.join(sorted(known))}"
        )
    return presets[preset](**changes)
