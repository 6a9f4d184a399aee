"""Where images are: a folder, a list, a Parquet file of paths, or an address that fsspec knows."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..images.source import SUFFIXES
from ..runs.predictions import list_paths

COLUMNS = ("image_path", "path", "file", "filename")  # of a Parquet file, the first that is there


def is_remote(address: str) -> bool:
    return "://" in address


def find_addresses(source: str) -> list[str]:
    """Of every image of a source, in a stable order."""
    if is_remote(source):
        return find_remote_addresses(source)
    if source.endswith(".parquet"):
        return read_parquet_paths(source)
    return [str(path) for path in list_paths(source)]


def find_remote_addresses(source: str) -> list[str]:
    from fsspec.core import url_to_fs

    files, path = url_to_fs(source)
    if not files.exists(path):
        raise FileNotFoundError(f"nothing at {source!r}; check the address")
    names = files.find(path) if files.isdir(path) else [path]
    images = sorted(name for name in names if Path(name).suffix.lower() in SUFFIXES)
    if not images:
        endings = " ".join(sorted(SUFFIXES))
        raise ValueError(f"no images at {source!r}; it is searched for {endings}")
    return [files.unstrip_protocol(name) for name in images]


def read_parquet_paths(source: str) -> list[str]:
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
    paths: list[str] = table.column(column).to_pylist()
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise ValueError(f"the column {column!r} of {source!r} must hold paths, one in each row")
    return paths


@contextmanager
def fetch_all(addresses: Sequence[str]) -> Iterator[list[Path]]:
    """The images as local files: remote ones are fetched, and removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield [fetch(address, Path(folder), k) for k, address in enumerate(addresses)]


def fetch(address: str, folder: Path, number: int) -> Path:
    if not is_remote(address):
        return Path(address)
    import fsspec

    path = folder / f"{number}{Path(address).suffix}"
    try:
        with fsspec.open(address, "rb") as theirs, open(path, "wb") as ours:
            while chunk := theirs.read(1 << 20):
                ours.write(chunk)
    except OSError:
        path.unlink(missing_ok=True)  # reading it names it as missing
    return path
