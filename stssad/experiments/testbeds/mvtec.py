"""MVTec AD (Bergmann et al., 2019): the paper's 23 tasks, and any other category.

Layout, as the archive unpacks: <root>/<category>/{train/good, test/good, test/<defect>}/NNN.png and
ground_truth/<defect>/NNN_mask.png. Each kind of defect is a task of its own, against test/good.
"""

from pathlib import Path

from ...images.reading import Reading
from ...images.source import find_images, read_images
from .task_images import TaskImages

SOURCE = "https://www.mvtec.com/company/research/datasets/mvtec-ad"
PAPER_CATEGORIES = {
    "cable": (
        "bent_wire",
        "cable_swap",
        "combined",
        "cut_inner_insulation",
        "cut_outer_insulation",
        "missing_cable",
        "missing_wire",
        "poke_insulation",
    ),
    "carpet": ("color", "cut", "hole", "metal_contamination", "thread"),
    "grid": ("bent", "broken", "glue", "metal_contamination", "thread"),
    "tile": ("crack", "glue_strip", "gray_stroke", "oil", "rough"),
}


def category_folder(root: Path, category: str) -> Path:
    """<root>/<category> or <root>/mvtec/<category>, checked."""
    for folder in (root / category, root / "mvtec" / category):
        if (folder / "train" / "good").is_dir() and (folder / "test" / "good").is_dir():
            return folder
    raise FileNotFoundError(
        f"no MVTec AD category {category!r} in {str(root)!r}: there is neither "
        f"{category}/train/good with {category}/test/good nor the same below mvtec/. Get the data "
        f"from {SOURCE} (it is never downloaded for you), unpack it there, or name another folder "
        "with --data or STSSAD_DATA"
    )


def defects(root: Path, category: str) -> list[str]:
    """The tasks of a category: the paper's where it has them, else those of the folder."""
    if category in PAPER_CATEGORIES:
        return list(PAPER_CATEGORIES[category])
    test = category_folder(root, category) / "test"
    found = sorted(f.name for f in test.iterdir() if f.is_dir() and f.name != "good")
    if not found:
        raise FileNotFoundError(
            f"{str(test)!r} holds no folder of defects beside good; unpack the category again"
        )
    return found


def load(root: Path, category: str, defect: str, reading: Reading) -> TaskImages:
    """Images of one task."""
    folder = category_folder(root, category)
    if not (folder / "test" / defect).is_dir():
        there = ", ".join(sorted(f.name for f in (folder / "test").iterdir() if f.name != "good"))
        raise FileNotFoundError(
            f"no folder test/{defect} in {str(folder)!r}, which has {there or 'no defects'}; "
            "unpack the category again, or name another task"
        )
    train, normal, anomalous = (
        read_images(find_images(folder / part), reading)[0]
        for part in ("train/good", "test/good", f"test/{defect}")
    )
    return TaskImages(f"{category}/{defect}", train, normal, anomalous)
