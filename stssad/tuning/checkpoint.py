"""A restart under way as one file, from which it resumes bit-identically.

The tensors and, as JSON in the file's metadata, all else. One file, written to a temporary one and
renamed: there is a whole checkpoint or none. What a state consists of is its codec's.
"""

import hashlib
import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from ..storage.files import (
    intact,
    on_device,
    read_tensors_and_metadata,
    require,
    write_tensors,
)
from ..version import __version__

State = TypeVar("State")
Content = tuple[dict[str, Tensor], dict[str, Any]]  # tensors, and what goes into the metadata
CHECKPOINT_EVERY = 5  # steps: warm-start epochs, or iterations
ADVICE = "delete it to begin that restart again"


class Codec(Protocol[State]):
    """A state as tensors and metadata, and back."""

    def pack(self, state: State) -> Content: ...

    def unpack(self, content: Content) -> State: ...

    def same_shapes(self, one: State, other: State) -> bool:
        """Whether one state can take the place of the other."""


def fingerprint(parts: Iterable[object], tensors: Iterable[Tensor]) -> str:
    """Differs where a part or a number does."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(str(part).encode())
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
    """Stores the state of one restart every few steps and at its end; None: nowhere."""

    def __init__(self, path: Path | None, made_of: Callable[[], str], codec: Codec[State]) -> None:
        self.path, self.codec = path, codec
        self.fingerprint = made_of() if path else ""

    def resumed(self, initial: State, device: torch.device) -> State | None:
        """The stored state, if there is one and it has the initial one's shapes."""
        if self.path is None or not self.path.is_file():
            return None
        tensors, metadata = read_checkpoint(self.path, self.fingerprint)
        with intact(self.path, ADVICE):
            state = self.codec.unpack((on_device(tensors, device), metadata))
            require(self.codec.same_shapes(state, initial), "it doesn't fit what is tuned")
        return state

    @property
    def is_there(self) -> bool:
        return self.path is None or self.path.is_file()

    def keep(self, state: State, n_steps: int, is_last: bool) -> None:
        if n_steps % CHECKPOINT_EVERY == 0 or is_last:
            self.write(state)

    def write(self, state: State) -> None:
        if self.path is not None:
            write_checkpoint(self.path, self.fingerprint, self.codec.pack(state))


def write_checkpoint(path: Path, made_of: str, content: Content) -> None:
    tensors, metadata = content
    path.parent.mkdir(exist_ok=True)  # without parents: a run that was removed isn't made again
    write_tensors(path, tensors, {**metadata, "fingerprint": made_of})


def read_checkpoint(path: Path, made_of: str) -> Content:
    """The stored content; one of other data is an error."""
    tensors, metadata = read_tensors_and_metadata(path, ADVICE)
    if metadata.get("fingerprint") != made_of:
        raise ValueError(
            f"{os.path.basename(path)} belongs to other images or settings than these; "
            "resume with the same ones, or begin again with another --out"
        )
    return tensors, metadata
