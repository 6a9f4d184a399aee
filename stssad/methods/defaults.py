"""What was left open, filled in: the one place, for Python and the command line alike."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ..augment import Augmentation
from ..encoders.encoder import as_encoder
from ..images.source import FitImages, Images, images_for_fit
from ..registry import METHODS
from ..tuning.progress import Notify
from ..tuning.val_loss import ValLoss
from .advice import about_size, about_unreadable
from .problem import Choices, FitProblem, Method


def resolve(
    method: str,
    augmentation: Augmentation | Sequence[Augmentation] | None = None,
    encoder: nn.Module | None = None,
    settings: Any = None,
    val_loss: ValLoss | None = None,
) -> tuple[Method, Choices]:
    """The method by its name, and all that it needs; what it doesn't know is an error."""
    chosen: Method = METHODS[method]
    check_settings(chosen, settings)
    if encoder is not None:
        encoder = checked_encoder(chosen, encoder)
    augmentations = None
    if augmentation is not None:
        if isinstance(augmentation, Sequence):
            augmentations = list(augmentation)
        else:
            augmentations = [augmentation]
        if not augmentations:
            raise ValueError("augmentation is an empty list; name at least one, or None for all")
    return chosen, chosen.choices(augmentations, encoder, settings, val_loss)


def pose_problem(
    estimator: Any,
    train: Images | FitImages,
    unlabeled: Images | None,
    progress: Notify | None = None,
    checkpoints: str | Path | None = None,
    warm_starts: str | Path | None = None,
) -> tuple[FitProblem, list[str]]:
    """What the estimator asks of its method, with the images read; and warnings about the files."""
    e = estimator
    _, choices = resolve(e.method, e.augmentation, e.encoder, e.settings, e.val_loss)
    given = train
    if not isinstance(given, FitImages):
        given = images_for_fit(given, unlabeled, choices.settings.reading)
    problem = FitProblem(
        train=given.train,
        pool=given.pool,
        choices=choices.with_reading(given.reading),
        seed=e.seed,
        jobs=e.jobs,
        device=e.device,
        engine=e.engine,
        progress=progress,
        checkpoints=Path(checkpoints) if checkpoints else None,
        warm_starts=Path(warm_starts) if warm_starts else None,
    )
    for folder in (checkpoints, warm_starts):
        if folder:
            Path(folder).parent.mkdir(parents=True, exist_ok=True)
    about_files = about_unreadable(given.unreadable)
    return problem, [*about_files, *about_size(given.file_side, problem.image_size)]


def check_settings(method: Method, settings: Any) -> None:
    if settings is None or isinstance(settings, method.settings_type):
        return
    for name in METHODS:
        if isinstance(settings, METHODS[name].settings_type):
            raise ValueError(
                f"{type(settings).__name__} belongs to the method {name!r}, not to "
                f"{method.name!r}; pass method={name!r}, or {method.settings_type.__name__}"
            )
    raise TypeError(
        f"settings must be {method.settings_type.__name__}, got {type(settings).__name__}"
    )


def checked_encoder(method: Method, encoder: nn.Module) -> nn.Module:
    """An encoder that the method can use: the paper's trains it, the pretrained one keeps it."""
    encoder, name = as_encoder(encoder, method.trains), type(encoder).__name__
    check_trainable(method, name, encoder.trainable)  # type: ignore[arg-type]
    return encoder


def check_trainable(method: Method, name: str, trainable: bool) -> None:
    """Asked of one of our encoders before it is built, which loads its weights."""
    if trainable and not method.trains:
        raise ValueError(
            f"{name} is to be trained, and the pretrained method trains nothing; use "
            "method='paper', or an encoder with trainable = False"
        )
    if not trainable and method.trains:
        raise ValueError(
            f"{name} keeps its weights (trainable = False), and the paper's method trains its "
            "encoder; use method='pretrained', or set trainable = True to fine-tune it"
        )
