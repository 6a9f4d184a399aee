"""One process at a time, by a lock file that the system frees as soon as its holder ends.

The file itself stays: whoever removed it could leave two processes with a lock of their own each.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

PATIENCE = 1.0  # seconds: somebody who only looks whether it is held has it for an instant


class HeldError(ValueError):
    """Another process has the lock."""


def lock_beside(path: Path) -> Path:
    """The lock of a file, hidden beside it: the file itself may be replaced."""
    return path.with_name(f".{path.name}.lock")


@contextmanager
def locked(path: Path, seconds: float = PATIENCE) -> Iterator[None]:
    """Alone, once the lock is free within that time; -1 waits for as long as it takes."""
    lock = FileLock(path, timeout=seconds)
    try:
        lock.acquire()
    except Timeout:
        raise HeldError(f"another process has locked {str(path)!r}") from None
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether some process has it now."""
    if not path.is_file():
        return False
    try:
        with locked(path, 0):
            return False
    except HeldError:
        return True
    except OSError:  # of somebody else's, or on a disk that can only be read: nobody writes there
        return False
