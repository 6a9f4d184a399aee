"""What somebody asks a fit for: everything that its result depends on, as it stands in a run.

Command line, studio and demonstrations build one; whoever resumes the run reads it again.
"""

import inspect
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..images.reading import Reading
from ..registry import AUGMENTATIONS, DEFAULTS, ENCODERS, METHODS, Registry
from ..scoring.decision import FALSE_ALARMS, FALSE_DISCOVERIES
from ..settings import SETTINGS, AnySettings
from ..storage.files import intact
from .folder import ADVICE, RunFolder

if TYPE_CHECKING:  # slow to import, and a page that lists requests needs none of it
    from torch import nn

    from ..model import STSSAD

FREE = ("jobs", "device", "explain")  # may differ when a run is resumed: the result is the same
SETTLED = ("white_level", "image_size")  # None until the files have been looked at


@dataclass(frozen=True)
class FitRequest:
    """Augmentations and encoder by their names; `normal` and `unlabeled` are folders, None where
    images come from memory."""

    normal: Path | None
    unlabeled: Path | None
    method: str
    augmentation: tuple[str, ...]
    encoder: str
    settings: AnySettings
    seed: int = 0
    false_alarms: float = FALSE_ALARMS
    false_discoveries: float | None = FALSE_DISCOVERIES
    engine: str = "auto"
    strict: bool = False
    explain: bool = True  # what kind of anomaly the pool holds
    jobs: int = 0  # 0: one for each core
    device: str = "cpu"

    @staticmethod
    def of(
        normal: Path | None,
        unlabeled: Path | None,
        method: str = "pretrained",
        augmentation: tuple[str, ...] | None = None,
        encoder: str | None = None,
        settings: AnySettings | None = None,
        **more: Any,
    ) -> "FitRequest":
        """With what is left open filled in; names that don't go together are an error."""
        default = DEFAULTS[method]
        request = FitRequest(
            normal,
            unlabeled,
            method,
            augmentation or default.augmentations,
            encoder or default.encoder,
            settings or SETTINGS[method](),
            **more,
        )
        request.check()
        return request

    def check(self) -> None:
        """Before anything is read, and without loading an encoder's weights."""
        from ..methods.defaults import check_settings, check_trainable

        method = METHODS[self.method]
        check_settings(method, self.settings)
        for name in self.augmentation:
            check_ours(AUGMENTATIONS, name)
        check_ours(ENCODERS, self.encoder)
        check_trainable(method, self.encoder, ENCODERS[self.encoder].trainable)

    def settled(self, reading: Reading) -> "FitRequest":
        """With the image size and the white level that the normal images were read with."""
        size = self.settings.image_size or reading.image_size
        settings = replace(self.settings, image_size=size, white_level=reading.white_level)
        return replace(self, settings=settings)

    def content(self) -> dict[str, Any]:
        """For JSON; folders are absolute, so that the run can be resumed from anywhere."""
        return {
            **vars(self),
            "normal": self.normal and str(self.normal.absolute()),
            "unlabeled": self.unlabeled and str(self.unlabeled.absolute()),
            "augmentation": list(self.augmentation),
            "settings": asdict(self.settings),
        }

    @staticmethod
    def of_content(content: Mapping[str, Any]) -> "FitRequest":
        """What `content` gave; names and settings are checked."""
        method = content["method"]
        if method not in SETTINGS:
            raise ValueError(f"unknown method {method!r}; use {', '.join(SETTINGS)}")
        given = dict(content)
        for name in ("normal", "unlabeled"):
            given[name] = None if content[name] is None else Path(content[name])
        given["augmentation"] = tuple(content["augmentation"])
        given["settings"] = SETTINGS[method](**content["settings"])
        return FitRequest.of(**given)

    def estimator(self) -> "STSSAD":
        """One that isn't fitted yet; the encoder's weights are loaded here, and only here."""
        from ..model import STSSAD

        augmentations = [AUGMENTATIONS[name]() for name in self.augmentation]
        return STSSAD(
            self.method,
            augmentations[0] if len(augmentations) == 1 else augmentations,
            self._built_encoder(),
            self.settings,
            self.seed,
            jobs=self.jobs or os.cpu_count() or 1,
            device=self.device,
            false_alarms=self.false_alarms,
            false_discoveries=self.false_discoveries,
            engine=self.engine,
            explain=self.explain,
        )

    def _built_encoder(self) -> "nn.Module":
        """Arguments that the settings have too are taken from there."""
        kind = ENCODERS[self.encoder]
        shared = [p for p in inspect.signature(kind).parameters if hasattr(self.settings, p)]
        encoder: nn.Module = kind(**{name: getattr(self.settings, name) for name in shared})
        return encoder


def request_in(folder: RunFolder) -> FitRequest:
    """What a run was begun with."""
    metadata = folder.metadata
    with intact(folder.metadata_file, ADVICE):
        return FitRequest.of_content(metadata["request"])


def check_ours(registry: Registry, name: str) -> None:
    """Only what has a name of ours can be asked for by name."""
    if name not in registry:
        raise ValueError(
            f"the {registry.kind} {name!r} is none of stssad's, so no command can build it; fit "
            f"from Python: STSSAD({registry.kind}=...)"
        )


def check_same(before: Mapping[str, Any], now: FitRequest, folder: Path) -> None:
    """A run is resumed only as it began."""
    old, new = flat(before), flat(now.content())
    for name, value in new.items():
        open_yet = name in SETTLED and (value is None or old.get(name) is None)
        if name not in FREE and not open_yet and old.get(name) != value:
            raise ValueError(
                f"the run in {str(folder)!r} was begun with {name} {old.get(name)!r}, not "
                f"{value!r}; resume it with the same, or give another --out"
            )


def flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """Settings beside the rest, so that an error names the very setting."""
    rest = {name: value for name, value in content.items() if name != "settings"}
    return {**rest, **content["settings"]}
