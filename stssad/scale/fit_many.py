"""Many product lines fitted side by side, from one TOML file.

    [bolt]
    normal = "bolt/good"
    unlabeled = "bolt/pool"
    out = "runs/bolt"
    seed = 1                  # and other flags of `stssad fit`, with underscores

A line is fitted by `stssad fit` itself, in a process of its own; one that is finished isn't fitted
again, one that was stopped is resumed.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runs.folder import RunFolder
from .scoring import connect

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NEEDED = ("normal", "unlabeled", "out")


@dataclass(frozen=True)
class ProductLine:
    """A product line, and the arguments of its fit."""

    name: str
    out: Path
    arguments: tuple[str, ...]  # of `stssad fit`


@dataclass(frozen=True)
class Outcome:
    """How the fit of a line ended."""

    name: str
    ok: bool
    message: str


def read_lines(path: Path) -> list[ProductLine]:
    """The lines of the file, checked; folders are relative to it."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"no such file: {str(path)!r}; check the path") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{str(path)!r} is no TOML file: {error}") from None
    if not content:
        raise ValueError(f"{str(path)!r} names no line; give each a table: [bolt]")
    lines = [parse_line(name, table, path) for name, table in content.items()]
    outs = [line.out for line in lines]
    for line in lines:
        if outs.count(line.out) > 1:
            raise ValueError(f"two lines of {str(path)!r} have the same out: {str(line.out)!r}")
    return lines


def parse_line(name: str, table: Any, path: Path) -> ProductLine:
    if not isinstance(table, dict):
        raise ValueError(f"{name} of {str(path)!r} must be a table: [{name}]")
    missing = [key for key in NEEDED if not isinstance(table.get(key), str)]
    if missing:
        raise ValueError(f'the line {name!r} of {str(path)!r} needs {missing[0]} = "a folder"')
    base = path.parent.absolute()
    arguments: list[str] = []
    for key, value in table.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{key} of the line {name!r} must be a word or a number")
        text = str(base / str(value)) if key in NEEDED else str(value)
        arguments += [f"--{key.replace('_', '-')}", text]
    return ProductLine(name, base / table["out"], tuple(arguments))


def fit_line(line: ProductLine) -> Outcome:
    """In a process of its own, with one core."""
    run = RunFolder(line.out)
    if run.state == "finished":
        return Outcome(line.name, True, "was finished before")
    resume = ["--resume"] if run.is_run else []
    code = "from stssad.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "fit", *line.arguments, "--jobs", "1", "--quiet", *resume],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode == 0:
        return Outcome(line.name, True, "fitted")
    errors = [text for text in done.stderr.splitlines() if text.strip()] or ["it was killed"]
    return Outcome(line.name, False, errors[-1].removeprefix("stssad: "))


def fit_many(lines: list[ProductLine], address: str) -> Iterator[Outcome]:
    """On a Ray cluster, a CPU for each line; folders must be there on every node."""
    ray = connect(address)
    remote = ray.remote(num_cpus=1, max_retries=3)(fit_line)
    waiting = [remote.remote(line) for line in lines]
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        yield from ray.get(done)
