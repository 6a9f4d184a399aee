"""What was left open, filled in: the one place, for Python and the command line alike."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from ..augment import Augmentation
from ..encoders.encoder import as_encoder
from ..registry import METHODS
from ..scoring.part import Part
from ..tuning.val_loss import ValLoss
from .problem import Choices, Method


def resolve(
    method: str,
    augmentation: Augmentation | Sequence[Augmentation] | None = None,
    encoder: nn.Module | None = None,
    settings: Any = None,
    val_loss: ValLoss | None = None,
    parts: Sequence[Part] | None = None,
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
    if parts is not None and not parts:
        raise ValueError("parts is an empty list; name at least one, or None for the default")
    own_parts = None if parts is None else list(parts)
    return chosen, chosen.choices(augmentations, encoder, settings, val_loss, own_parts)


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
    if encoder.trainable and not method.trains:
        raise ValueError(
            f"{name} is to be trained, and the pretrained method trains nothing; use "
            "method='paper', or an encoder with trainable = False"
        )
    if not encoder.trainable and method.trains:
        raise ValueError(
            f"{name} keeps its weights (trainable = False), and the paper's method trains its "
            "encoder; use method='pretrained', or set trainable = True to fine-tune it"
        )
    return encoder
