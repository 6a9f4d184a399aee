"""Where images are: a folder, a list, a Parquet file of paths, or an address that fsspec knows."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..images import SUFFIXES
from ..predictions import listed_paths

COLUMNS = ("image_path", "path", "file", "filename")  # of a Parquet file, the first that is there


def is_remote(address: str) -> bool:
    return "://" in address


def addresses_of(source: str) -> list[str]:
    """Every image's, in a stable order."""
    if is_remote(source):
        return remote_addresses(source)
    if source.endswith(".parquet"):
        return paths_in_parquet(source)
    return [str(path) for path in listed_paths(source)]


def remote_addresses(source: str) -> list[str]:
    from fsspec.core import url_to_fs

    files, path = url_to_fs(source)
    if not files.exists(path):
        raise FileNotFoundError(f"nothing at {source!r}; check the address")
    found = files.find(path) if files.isdir(path) else [path]
    images = sorted(each for each in found if Path(each).suffix.lower() in SUFFIXES)
    if not images:
        endings = " ".join(sorted(SUFFIXES))
        raise ValueError(f"no images at {source!r}; it is searched for {endings}")
    return [files.unstrip_protocol(each) for each in images]


def paths_in_parquet(source: str) -> list[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(source)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{source!r} is no Parquet file: {str(error).splitlines()[0]}") from None
    column = next((name for name in COLUMNS if name in table.column_names), None)
    if column is None and len(table.column_names) == 1:
        column = table.column_names[0]
    if column is None:
        raise ValueError(
            f"{source!r} has no column {' or '.join(COLUMNS)}, only {', '.join(table.column_names)}"
        )
    found: list[str] = table.column(column).to_pylist()
    if not found or not all(isinstance(each, str) and each for each in found):
        raise ValueError(f"the column {column!r} of {source!r} must hold paths, one in each row")
    return found


@contextmanager
def local(addresses: Sequence[str]) -> Iterator[list[Path]]:
    """The images as files of this machine: remote ones are fetched, and removed again."""
    with tempfile.TemporaryDirectory() as folder:
        yield [fetched(each, Path(folder), k) for k, each in enumerate(addresses)]


def fetched(address: str, folder: Path, number: int) -> Path:
    if not is_remote(address):
        return Path(address)
    import fsspec

    path = folder / f"{number}{Path(address).suffix}"
    try:
        with fsspec.open(address, "rb") as theirs, open(path, "wb") as ours:
            while some := theirs.read(1 << 20):
                ours.write(some)
    except OSError:
        path.unlink(missing_ok=True)  # it is named as missing when it is read
    return path
