"""A fitted model as files: tensors in safetensors, all else in JSON, never pickle.

Each file is written under a temporary name and renamed: a file that is there is whole.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from .layout import canonical


@contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """A name to write to, which takes the place of `path` in one step if all goes well."""
    other = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield other
        os.replace(other, path)
    finally:
        other.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text file that takes the place of `path` when it is closed."""
    with temporary(path) as other, open(other, "w", encoding="utf-8", newline="") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    with replacing(path) as file:
        text = json.dumps(content, indent=1, ensure_ascii=False, default=_as_list)
        file.write(text + "\n")


def _as_list(value: Any) -> Any:
    """Arrays and tensors that a user passed as settings."""
    return value.tolist()


def read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None
) -> None:
    """`metadata` is kept with them as JSON."""
    from safetensors.torch import save

    # A copy of each: safetensors refuses tensors that share memory, as a best state may.
    plain = {name: canonical(t.cpu()) for name, t in tensors.items()}
    words = None if metadata is None else {"json": json.dumps(metadata)}
    with temporary(path) as other, open(other, "wb") as file:
        file.write(save(plain, words))
        file.flush()
        os.fsync(file.fileno())


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return {name: canonical(tensor) for name, tensor in load_file(path).items()}


def read_tensors_and_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file, and the JSON that was written with them."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        tensors = {name: canonical(file.get_tensor(name)) for name in file.keys()}
        return tensors, json.loads((file.metadata() or {})["json"])


def on_device(tensors: Mapping[str, Tensor], device: str | torch.device) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with the prefix, without it."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): tensor
        for name, tensor in tensors.items()
        if name.startswith(start)
    }
