"""The repository's documents of results: docs/results.md, and the tables of the pretrained method.

python benchmarks/documents.py [--check]

From the lines in results/; run it in the repository's root. With --check nothing is written: it
names what the results would change.
"""

import argparse
import sys
from pathlib import Path

from stssad.experiments.bench.beyond import fill_tables
from stssad.experiments.bench.cell import Store
from stssad.experiments.bench.document import document, notes_beside
from stssad.storage.files import replacing

RESULTS, DOCUMENT = Path("results"), Path("docs/results.md")
DOCS = ("beyond-the-paper.md", "decisions.md", "studio.md")
WITH_TABLES = (*(Path("docs") / name for name in DOCS), Path("README.md"))


def check_root(folder: Path) -> None:
    """Only of a checkout of this repository: elsewhere a README.md is somebody else's."""
    project = folder / "pyproject.toml"
    ours = project.is_file() and '\nname = "stssad"\n' in project.read_text(encoding="utf-8")
    missing = [p for p in (RESULTS, DOCUMENT, *WITH_TABLES) if not (folder / p).exists()]
    if not ours or missing:
        sys.exit(f"{str(folder)!r} is not the root of stssad's repository; change to it first")


def documents(folder: Path) -> dict[Path, str]:
    """What each file should hold."""
    lines = Store(folder / RESULTS).all_lines()
    tables = {p: fill_tables((folder / p).read_text(encoding="utf-8"), lines) for p in WITH_TABLES}
    return {DOCUMENT: document(lines, notes=notes_beside(folder / RESULTS)), **tables}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="Write nothing, exit with 1 if old.")
    args, folder = parser.parse_args(), Path.cwd()
    check_root(folder)
    wanted = documents(folder)
    old = [p for p, text in wanted.items() if (folder / p).read_text(encoding="utf-8") != text]
    for path in old:
        print(f"{path}: {'not what the results give' if args.check else 'written'}")
        if not args.check:
            with replacing(folder / path) as file:
                file.write(wanted[path])
    if not old:
        print("all documents are what the results give")
    sys.exit(1 if args.check and old else 0)


if __name__ == "__main__":
    main()
