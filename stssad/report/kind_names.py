"""What people call the kinds of anomalies: kept with the run, shown by its pages."""

import threading
from pathlib import Path

from ..storage import read_json, write_json

FILE = "kinds.json"
LONGEST_NAME = 60
ADVICE = "remove it, and name the kinds again"
_WRITING = threading.Lock()  # two people may name kinds at once


def kind_names(folder: Path) -> dict[int, str]:
    """By the number of the kind; nothing where nobody has named any."""
    if not (folder / FILE).is_file():
        return {}
    found = read_json(folder / FILE, ADVICE)
    wanted = {
        int(kind): words
        for kind, words in found.items()
        if kind.isdecimal() and len(kind) < 3 and isinstance(words, str) and words.strip()
    }
    if len(wanted) < len(found) or any(len(words) > LONGEST_NAME for words in wanted.values()):
        raise ValueError(f"{str(folder / FILE)!r} doesn't hold names of kinds; {ADVICE}")
    return wanted


def name_kind(folder: Path, kind: int, words: str) -> dict[int, str]:
    """An empty name takes the old one back. All names there are now."""
    with _WRITING:
        names = {**kind_names(folder), kind: " ".join(words.split())[:LONGEST_NAME]}
        kept = {k: name for k, name in sorted(names.items()) if name}
        write_json(folder / FILE, {str(k): name for k, name in kept.items()})
    return kept


def called(names: dict[int, str], kind: int) -> str:
    """In lists; nothing for an image of no kind."""
    return "" if kind < 0 else names.get(kind, f"kind {kind + 1}")


def is_newer(folder: Path, page: Path) -> bool:
    """Whether kinds were named after a page was written."""
    try:
        return (folder / FILE).stat().st_mtime_ns > page.stat().st_mtime_ns
    except OSError:
        return False
