"""A restart under way as one file, from which it resumes bit-identically.

The tensors and, as JSON in the file's metadata, all else. One file, written to a temporary one and
renamed: there is a whole checkpoint or none.
"""

import hashlib
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ..storage import (
    on_device,
    read_tensors_and_metadata,
    with_prefix,
    without_prefix,
    write_tensors,
)
from ..version import __version__
from .frozen_tuner import FrozenBest, FrozenRecord, FrozenState
from .tuner import Best, Record, TunerState

State = TypeVar("State", TunerState, FrozenState)
Content = tuple[dict[str, Tensor], dict[str, Any]]  # tensors, and what goes into the metadata
CHECKPOINT_EVERY = 5  # steps: warm-start epochs, or iterations


def fingerprint(words: Iterable[object], tensors: Iterable[Tensor]) -> str:
    """Differs where the words or the numbers do."""
    digest = hashlib.sha256()
    for text in words:
        digest.update(str(text).encode())
    for tensor in tensors:
        digest.update(tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def source(part: object) -> str:
    """The code of a part's class, and our version: results of other code are other results."""
    try:
        code = inspect.getsource(type(part))
    except (OSError, TypeError):  # made where there is no file
        code = ""
    return f"{__version__} {code}"


class Checkpointer(Generic[State]):
    """Keeps the state of one restart every few steps and at its end; None: nowhere."""

    pack: Callable[[State], Content]

    def __init__(
        self, path: Path | None, made_of: Callable[[], str], pack: Callable[[State], Content]
    ) -> None:
        self.path, self.pack = path, pack
        self.fingerprint = made_of() if path else ""

    def read(self) -> Content | None:
        """What was kept, if anything."""
        return None if self.path is None else read_checkpoint(self.path, self.fingerprint)

    def keep(self, state: State, n_steps: int, is_last: bool) -> None:
        if self.path is not None and (n_steps % CHECKPOINT_EVERY == 0 or is_last):
            write_checkpoint(self.path, self.fingerprint, self.pack(state))


def write_checkpoint(path: Path, made_of: str, content: Content) -> None:
    tensors, metadata = content
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, tensors, {**metadata, "fingerprint": made_of})


def read_checkpoint(path: Path, made_of: str) -> Content | None:
    """The content that was kept, or None if there is none."""
    if not path.is_file():
        return None
    tensors, metadata = read_tensors_and_metadata(path, "delete it to begin that restart again")
    if metadata.get("fingerprint") != made_of:
        raise ValueError(
            f"{os.path.basename(path)} belongs to other images or settings than these; "
            "resume with the same ones, or begin again with another --out"
        )
    return tensors, metadata


def pack_tuner(state: TunerState) -> Content:
    """The state of Algorithm 1."""
    tensors = {
        **with_prefix("theta", state.theta),
        **with_prefix("buffers", state.buffers),
        **with_prefix("momentum", state.momentum),
        **_steps(state),
    }
    metadata: dict[str, Any] = {
        "n_updates": state.n_updates,
        "warm_losses": state.warm_losses,
        "history": [asdict(r) for r in state.history],
        "final_losses": state.final_losses,
        "best": None,
    }
    if (best := state.best) is not None:
        tensors |= with_prefix("best.theta", best.theta)
        tensors |= with_prefix("best.buffers", best.buffers)
        tensors["best.a"] = best.a
        metadata["best"] = [best.iteration, best.loss, best.train_loss]
    return tensors, metadata


def unpack_tuner(content: Content, device: torch.device) -> TunerState:
    tensors, metadata = on_device(content[0], device), content[1]
    best = None
    if metadata["best"] is not None:
        theta, buffers = (without_prefix(f"best.{kind}", tensors) for kind in ("theta", "buffers"))
        iteration, loss, train_loss = metadata["best"]
        best = Best(iteration, loss, train_loss, theta, buffers, tensors["best.a"])
    return TunerState(
        theta=without_prefix("theta", tensors),
        buffers=without_prefix("buffers", tensors),
        momentum=without_prefix("momentum", tensors),
        a=tensors["a"],
        adam=(tensors["adam.mean"], tensors["adam.square"]),
        generator=_generator(tensors),
        n_updates=metadata["n_updates"],
        warm_losses=metadata["warm_losses"],
        history=[Record(**r) for r in metadata["history"]],
        best=best,
        final_losses=metadata["final_losses"],
    )


def pack_frozen(state: FrozenState) -> Content:
    """The state of a restart that learns nothing but `a`."""
    tensors, best = _steps(state), state.best
    metadata: dict[str, Any] = {"history": [asdict(r) for r in state.history], "best": None}
    if best is not None:
        tensors["best.a"] = best.a
        metadata["best"] = [best.iteration, best.loss]
    return tensors, metadata


def unpack_frozen(content: Content, device: torch.device) -> FrozenState:
    tensors, metadata = on_device(content[0], device), content[1]
    best = None
    if metadata["best"] is not None:
        iteration, loss = metadata["best"]
        best = FrozenBest(iteration, loss, tensors["best.a"])
    return FrozenState(
        a=tensors["a"],
        adam=(tensors["adam.mean"], tensors["adam.square"]),
        generator=_generator(tensors),
        history=[FrozenRecord(**r) for r in metadata["history"]],
        best=best,
    )


def _steps(state: TunerState | FrozenState) -> dict[str, Tensor]:
    return {
        "a": state.a,
        "adam.mean": state.adam[0],
        "adam.square": state.adam[1],
        "generator": state.generator.get_state(),
    }


def _generator(tensors: dict[str, Tensor]) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(tensors["generator"].cpu())
    return generator
