"""A fitted model as files: tensors in safetensors, all else in JSON, never pickle.

Each file is written under a temporary name and renamed: a file that is there is whole.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

if TYPE_CHECKING:  # slow to import, and the studio's first page needs none of it
    import torch
    from torch import Tensor


class DamagedError(ValueError):
    """A file of ours that isn't as we wrote it."""

    def __init__(self, path: Path, why: object, advice: str) -> None:
        short = str(why).splitlines()[0][:200] if str(why) else type(why).__name__
        super().__init__(f"{str(path)!r} is damaged ({short}); {advice}")


class WrongContentError(Exception):
    """What `require` found."""


def require(condition: bool, why: str) -> None:
    """Of what a file holds, within `intact`."""
    if not condition:
        raise WrongContentError(why)


# What reading a file raises whose content is not what it should be, whoever changed it.
WRONG_CONTENT = (
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    OverflowError,
    ZeroDivisionError,
    RecursionError,
    MemoryError,
    UnicodeError,
    json.JSONDecodeError,
    RuntimeError,
    WrongContentError,
)


@contextmanager
def intact(path: Path, advice: str) -> Iterator[None]:
    """Reading a file that anyone may have changed: one sentence, never a traceback."""
    from safetensors import SafetensorError

    try:
        yield
    except (*WRONG_CONTENT, SafetensorError) as error:
        plain = isinstance(error, WrongContentError)
        raise DamagedError(path, error if plain else repr(error), advice) from None


@contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """A name to write to, which takes the place of `path` in one step if all goes well.

    Where `path` is a link, that of what it leads to; the link stays. Other processes' temporary
    files for the same path are removed if those processes are gone.
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no such folder: {str(path.parent)!r}; make it, or give another")
    # Not with the whole name in it, which may be as long as a name can be.
    start = f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]}."
    for old in path.parent.glob(f"{start}*.tmp"):
        if not is_alive(old.name.removeprefix(start).removesuffix(".tmp")):
            old.unlink(missing_ok=True)
    other = path.with_name(f"{start}{os.getpid()}.tmp")
    try:
        yield other
        os.replace(other, path)
    finally:
        other.unlink(missing_ok=True)


def is_alive(process: str) -> bool:
    """Whether a process of this number runs; one that we may not ask does."""
    try:
        os.kill(int(process), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except OSError:
        return True
    return True


@contextmanager
def replacing(path: Path, errors: str = "strict") -> Iterator[TextIO]:
    """A text file that takes the place of `path` when it is closed.

    What isn't a regular file, such as a pipe or a device, is written to as it is. `errors`: of the
    encoding, for names that aren't UTF-8.
    """
    if path.exists() and not path.is_file():
        with open(path, "w", encoding="utf-8", errors=errors, newline="") as file:
            yield file
        return
    with (
        temporary(path) as other,
        open(other, "w", encoding="utf-8", errors=errors, newline="") as file,
    ):
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replacing_bytes(path: Path) -> Iterator[BinaryIO]:
    """The same for bytes."""
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    with temporary(path) as other, open(other, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    with replacing(path) as file:
        file.write(json_text(content, indent=1) + "\n")


def json_text(content: Any, indent: int | None = None) -> str:
    """Readable where it can be; names of files that aren't UTF-8 are escaped, without loss."""
    text = json.dumps(content, indent=indent, ensure_ascii=False, default=_as_list)
    with suppress(UnicodeEncodeError):
        text.encode()
        return text
    return json.dumps(content, indent=indent, default=_as_list)


def _as_list(value: Any) -> Any:
    """Arrays and tensors that a user passed as settings."""
    return value.tolist()


def read_json(path: Path, advice: str = "write it again") -> dict[str, Any]:
    """An object; anything else is damage."""
    with intact(path, advice):
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise DamagedError(path, "it holds no JSON object", advice)
    return content


def json_digest(content: Mapping[str, Any]) -> str:
    """Of its JSON form, whatever the order and the spaces."""
    readable = json.loads(json_text(content))
    return hashlib.sha256(json.dumps(readable, sort_keys=True).encode()).hexdigest()


def write_tensors(
    path: Path, tensors: Mapping[str, "Tensor"], metadata: Mapping[str, Any] | None = None
) -> None:
    """`metadata` is stored with them as JSON."""
    from safetensors.torch import save

    from .layout import canonical

    # A copy of each: safetensors refuses tensors that share memory, as a best state may.
    plain = {name: canonical(t.cpu()) for name, t in tensors.items()}
    text = json.dumps(dict(metadata or {}))
    entry = {"sha256": tensors_digest(plain, text), "metadata": text}
    header = {"stssad": json.dumps(entry)}  # one entry: the order of several is random
    with temporary(path) as other, open(other, "wb") as file:
        file.write(save(plain, header))
        file.flush()
        os.fsync(file.fileno())


def tensors_digest(tensors: Mapping[str, "Tensor"], metadata: str) -> str:
    import torch

    digest = hashlib.sha256(metadata.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_tensors(path: Path, advice: str = "write it again") -> dict[str, "Tensor"]:
    return read_tensors_and_metadata(path, advice)[0]


def read_tensors_and_metadata(
    path: Path, advice: str = "write it again"
) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
    """The tensors of a file, and the JSON that was written with them; all as it was written."""
    from safetensors import safe_open

    from .layout import canonical

    with intact(path, advice):
        with safe_open(path, "pt") as file:
            tensors = {name: canonical(file.get_tensor(name)) for name in file.keys()}
            entry = json.loads((file.metadata() or {})["stssad"])
        same = entry["sha256"] == tensors_digest(tensors, entry["metadata"])
        require(same, "its checksum differs")
        return tensors, json.loads(entry["metadata"])


def on_device(tensors: Mapping[str, "Tensor"], device: "str | torch.device") -> dict[str, "Tensor"]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def with_prefix(prefix: str, tensors: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    """The tensors whose names begin with the prefix, without it."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): tensor
        for name, tensor in tensors.items()
        if name.startswith(start)
    }
