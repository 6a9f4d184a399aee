"""What a user should know about a fit, each in one sentence with what to do about it."""

import math

from torch import Tensor

from ..scoring.conditions import Difference

FEW_IN_POOL = 30
FEW_NORMAL = 20
MUCH_LARGER = 4  # files than images, in pixels of a side


def about_counts(n_pool: int | None, normal_scores: Tensor) -> list[str]:
    """Warnings about too few images; None: there was no pool."""
    warnings, n_normal = [], len(normal_scores)
    if n_pool is None:
        warnings.append(
            "No unlabeled images were given, so nothing was tuned: the scores rest on the normal "
            "images alone. Pass a pool to learn from its anomalies."
        )
    elif n_pool < FEW_IN_POOL:
        warnings.append(
            f"The pool is tiny: {n_pool} images say little about the anomalies to tune to. "
            f"Add unlabeled images, at least {FEW_IN_POOL}."
        )
    if n_normal < FEW_NORMAL:
        warnings.append(
            f"Only {n_normal} normal images set the threshold, so it is a rough guess. "
            "Add normal images, or set your own threshold from the scores."
        )
    return warnings


def about_conditions(differences: list[Difference]) -> list[str]:
    """Warnings where the pool was taken under other conditions than the normal images."""
    return [_about_condition(difference) for difference in differences]


def _about_condition(d: Difference) -> str:
    more = d.pool > d.normal
    if d.name == "brightness":
        how = "brighter" if more else "darker"
        values = f"mean grey {255 * d.pool:.0f} against {255 * d.normal:.0f}"
    elif d.name == "colour":
        how = "bluer" if more else "redder"
        values = f"blue minus red {255 * d.pool:+.0f} against {255 * d.normal:+.0f}"
    else:
        ratio = math.exp(d.pool - d.normal)
        adjectives = {"contrast": ("higher in contrast", "lower in contrast")}
        adjectives["sharpness"] = ("sharper", "blurrier")
        how = adjectives[d.name][0 if more else 1]
        values = f"{d.name} {ratio:.2f} times the usual"
    return (
        f"{100 * d.share:.0f} % of the pool are {how} than normal images ({values}, across the "
        "image). This suggests a different light, camera or focus rather than a defect; if such "
        "images are normal, add some to the normal folder."
    )


def about_size(file_side: int | None, image_size: int) -> list[str]:
    """A warning where files are much larger than the images that they are resized to."""
    if file_side is None or file_side < MUCH_LARGER * image_size:
        return []
    smallest = 4 * file_side / image_size
    return [
        f"The files are {file_side} pixels wide and are resized to {image_size}: a defect smaller "
        f"than about {smallest:.0f} of the file's pixels may vanish. Crop to what matters, or "
        f"use larger images (--image-size {min(4 * image_size, 2048) // 2})."
    ]


def about_unreadable(paths: list[str]) -> list[str]:
    """Names every file that a fit has left out."""
    if not paths:
        return []
    names = ", ".join(map(repr, paths))
    return [f"{len(paths)} file(s) could not be read and were left out: {names}."]
