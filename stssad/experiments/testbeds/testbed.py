"""The testbeds by name: which tasks each has, how they are read, and what is tuned there."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ...augment import Augmentation
from ...augment.cutdiff import CutDiff
from ...augment.rotation import Rotation
from ...images.reading import Reading
from ...settings import AnySettings
from . import mvtec, svhn, synthetic
from .presets import SIZES_AT_64, is_demonstrative, preset_settings
from .task import Task
from .task_images import Protocol, TaskImages

CPU_SVHN = svhn.Limits(each=256)  # in the pool; to train, all there are


@dataclass(frozen=True)
class Testbed:
    """One source of tasks; `data` is the folder that the user's copy of it lies in."""

    __test__ = False  # its name is no invitation to pytest
    name: str
    data: Path | None = None

    @property
    def is_demonstrative(self) -> bool:
        return is_demonstrative(self.name)

    def augmentation(self, preset: str) -> Callable[[], Augmentation]:
        """What is tuned here, and where from."""
        if self.name == "svhn":
            return Rotation
        is_small = preset == "cpu" and not self.is_demonstrative
        return partial(CutDiff, SIZES_AT_64) if is_small else CutDiff

    def tasks(self) -> list[str]:
        if self.name == "svhn":
            return svhn.tasks()
        if self.is_demonstrative:
            return list(synthetic.demonstrative_tasks())
        return mvtec.defects(self._root(), self.name)

    def settings(self, preset: str, **changes: Any) -> AnySettings:
        """The preset's, for this testbed."""
        return preset_settings(self.name, preset, **changes)

    def load(
        self,
        task: str,
        preset: str,
        reading: Reading,
        protocol: Protocol,
        seed: int,
        contamination: float | None = None,
    ) -> Task:
        """One task; where the protocol divides images, by the seed."""
        if self.is_demonstrative:
            if protocol != "transductive" or contamination is not None:
                raise ValueError(
                    "the demonstrative tasks are transductive, with half of the pool patched"
                )
            return synthetic.demonstrative(task, reading, self.data, seed)
        parts = _parts(self.name, self._root(), task, preset, reading)
        return parts.task(protocol, seed, contamination)

    def _root(self) -> Path:
        if self.data is None:
            source = svhn.SOURCE if self.name == "svhn" else mvtec.SOURCE
            raise FileNotFoundError(
                f"the testbed {self.name!r} needs its data, from {source}; name the folder that "
                "holds them with --data or STSSAD_DATA (docs/benchmark.md has the layout). There "
                "are svhn, demonstrative, and MVTec AD's categories such as tile"
            )
        return self.data


@lru_cache(maxsize=8)  # several cells of a process read the same images
def _parts(name: str, root: Path, task: str, preset: str, reading: Reading) -> TaskImages:
    if name == "svhn":
        return svhn.load(root, task, reading, svhn.Limits() if preset == "paper" else CPU_SVHN)
    return mvtec.load(root, name, task, reading)


def find_testbed(name: str, data: Path | None = None) -> Testbed:
    """`svhn`, `demonstrative`, or a category of MVTec AD such as `tile`."""
    return Testbed(name, data)
