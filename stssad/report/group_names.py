"""The names that people give to groups of anomalies: stored with the run, shown by its pages."""

import threading
from pathlib import Path

from ..runs.folder import RunFolder
from ..storage.files import read_json, write_json

LONGEST_NAME = 60
ADVICE = "remove it, and name the groups again"
_WRITING = threading.Lock()  # two people may name groups at once


def read_group_names(folder: Path) -> dict[int, str]:
    """By the number of the group; empty where nobody has named any."""
    path = RunFolder(folder).groups
    if not path.is_file():
        return {}
    content = read_json(path, ADVICE)
    names = {
        int(group): name
        for group, name in content.items()
        if group.isdecimal() and len(group) < 3 and isinstance(name, str) and name.strip()
    }
    if len(names) < len(content) or any(len(name) > LONGEST_NAME for name in names.values()):
        raise ValueError(f"{str(path)!r} doesn't hold names of groups; {ADVICE}")
    return names


def save_group_name(folder: Path, group: int, name: str) -> dict[int, str]:
    """All names that there are now; an empty one removes the old one."""
    with _WRITING:
        names = {**read_group_names(folder), group: " ".join(name.split())[:LONGEST_NAME]}
        names = {number: each for number, each in sorted(names.items()) if each}
        write_json(RunFolder(folder).groups, {str(number): each for number, each in names.items()})
    return names


def format_group(names: dict[int, str], group: int) -> str:
    """For lists; empty for an image of no group."""
    return "" if group < 0 else names.get(group, f"group {group + 1}")


def is_newer(folder: Path, page: Path) -> bool:
    """Whether groups were named, or images labeled, after a page was written."""
    files = RunFolder(folder)
    changes = [path.stat().st_mtime_ns for path in (files.groups, files.labels) if path.is_file()]
    return page.is_file() and max(changes, default=0) > page.stat().st_mtime_ns
