"""A fitted model as files: tensors in safetensors, all else in JSON, never pickle.

Each file is written aside and renamed, so that a file that is there is whole.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(aside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=1, allow_nan=True) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    from safetensors.torch import save_file

    # A copy of each: safetensors refuses tensors that share memory, as a best state may.
    plain = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        save_file(plain, aside, metadata)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


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
