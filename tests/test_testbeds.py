"""Testbeds: each loader on a miniature of the original layout, whole and damaged; the protocols."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from torch import Tensor

from stssad.experiments.testbeds import mvtec, svhn
from stssad.experiments.testbeds.synthetic import demonstrative, demonstrative_tasks
from stssad.experiments.testbeds.task_images import TaskImages
from stssad.experiments.testbeds.testbed import find_testbed
from stssad.images.reading import Reading

READING = Reading(16)


def write_images(folder: Path, n: int, shade: int) -> None:
    folder.mkdir(parents=True)
    for i in range(n):
        Image.new("RGB", (20, 20), (shade, i, 0)).save(folder / f"{i:03}.png")


@pytest.fixture
def tile(tmp_path: Path) -> Path:
    """MVTec's layout with the paper's five defects of tile."""
    write_images(tmp_path / "tile/train/good", 12, 10)
    write_images(tmp_path / "tile/test/good", 6, 20)
    for k, defect in enumerate(mvtec.PAPER_CATEGORIES["tile"]):
        write_images(tmp_path / "tile/test" / defect, 4, 100 + k)
        write_images(tmp_path / "tile/ground_truth" / defect, 4, 255)
    return tmp_path


def test_there_are_23_tasks_of_mvtec_and_18_of_svhn(tmp_path: Path) -> None:
    sizes = {name: len(mvtec.defects(tmp_path, name)) for name in mvtec.PAPER_CATEGORIES}
    assert sizes == {"cable": 8, "carpet": 5, "grid": 5, "tile": 5}
    assert len(set(svhn.tasks())) == 18
    assert len(demonstrative_tasks()) == 25


@pytest.mark.parametrize("below", ["", "mvtec"])
def test_mvtec_is_read_from_its_layout(tile: Path, tmp_path: Path, below: str) -> None:
    if below:
        (tmp_path / below).mkdir()
        (tile / "tile").rename(tmp_path / below / "tile")
    parts = mvtec.load(tile, "tile", "oil", READING)
    assert parts.train.shape == (12, 3, 16, 16)
    assert (len(parts.normal), len(parts.anomalous)) == (6, 4)
    assert parts.anomalous[0, 0, 0, 0] == 103 and parts.normal[0, 0, 0, 0] == 20  # no masks


def test_any_other_category_has_the_defects_of_its_folder(tile: Path) -> None:
    (tile / "tile").rename(tile / "bottle")
    assert find_testbed("bottle", tile).tasks() == sorted(mvtec.PAPER_CATEGORIES["tile"])


def test_missing_mvtec_says_where_to_get_it_and_where_to_put_it(tile: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"carpet/train/good.*https://www\.mvtec\.com"):
        mvtec.load(tile, "carpet", "hole", READING)
    with pytest.raises(FileNotFoundError, match=r"test/scratch.*which has crack"):
        mvtec.load(tile, "tile", "scratch", READING)
    with pytest.raises(FileNotFoundError, match="--data or STSSAD_DATA"):
        find_testbed("carpet").load("hole", "cpu", READING, "transductive", 0)


def test_a_damaged_image_of_mvtec_is_named(tile: Path) -> None:
    (tile / "tile/test/oil/001.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"oil/001\.png"):
        mvtec.load(tile, "tile", "oil", READING)


def digits(n_each: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images whose first pixel tells the digit."""
    generator = np.random.default_rng(seed)
    y = np.repeat(np.arange(10), n_each)
    x = generator.integers(0, 256, (len(y), 32, 32, 3), dtype=np.uint8)
    x[:, 0, 0, :] = y[:, None]
    order = generator.permutation(len(y))
    return x[order], y[order]


@pytest.fixture
def mat_files(tmp_path: Path) -> Path:
    for part, n, seed in (("train", 9, 0), ("test", 6, 1)):
        x, y = digits(n, seed)
        y = np.where(y == 0, 10, y)[:, None]  # as in the original
        savemat(tmp_path / f"{part}_32x32.mat", {"X": x.transpose(1, 2, 3, 0), "y": y})
    return tmp_path


def shown(images: Tensor) -> set[int]:
    return set(images[:, 0, 0, 0].tolist())


def test_svhn_is_read_from_its_mat_files(mat_files: Path) -> None:
    parts = svhn.load(mat_files, "2/0", Reading(32), svhn.Limits())
    assert parts.train.shape == (9, 3, 32, 32) and parts.train.dtype == torch.uint8
    assert (len(parts.normal), len(parts.anomalous)) == (6, 6)
    assert (shown(parts.train), shown(parts.normal), shown(parts.anomalous)) == ({2}, {2}, {0})


def test_svhn_from_an_npz_keeps_training_and_test_apart(tmp_path: Path) -> None:
    x, y = digits(20, 0)
    (tmp_path / "svhn_grey").mkdir()
    np.savez(tmp_path / "svhn_grey" / "digits.npz", x=x[..., 0], y=y)
    parts = svhn.load(tmp_path, "6/9", Reading(32), svhn.Limits(train=7, each=5))
    assert (len(parts.train), len(parts.normal), len(parts.anomalous)) == (7, 5, 5)
    assert (shown(parts.train), shown(parts.anomalous)) == ({6}, {9})
    assert not as_rows(parts.train) & as_rows(parts.normal)
    again = svhn.load(tmp_path, "6/1", Reading(32), svhn.Limits(train=7, each=5))
    assert torch.equal(again.train, parts.train)  # whatever the anomaly


def test_missing_and_damaged_svhn(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train_32x32\.mat.*housenumbers"):
        svhn.load(tmp_path, "2/0", Reading(32), svhn.Limits())
    (tmp_path / "digits.npz").write_bytes(b"PK no zip")
    with pytest.raises(ValueError, match=r"digits\.npz.*write it again"):
        svhn.load(tmp_path, "2/0", Reading(32), svhn.Limits())
    (tmp_path / "digits.npz").unlink()
    for part in ("train", "test"):
        (tmp_path / f"{part}_32x32.mat").write_bytes(b"not a mat file" * 20)
    with pytest.raises(ValueError, match=r"train_32x32\.mat.*get it again"):
        svhn.load(tmp_path, "2/0", Reading(32), svhn.Limits())
    with pytest.raises(ValueError, match="unknown SVHN task '2/2'"):
        svhn.load(tmp_path, "2/2", Reading(32), svhn.Limits())


def as_rows(images: Tensor) -> set[bytes]:
    return {p.numpy().tobytes() for p in images}


@pytest.fixture
def parts() -> TaskImages:
    generator = torch.Generator().manual_seed(0)

    def images(n: int) -> Tensor:
        return torch.randint(0, 256, (n, 3, 8, 8), dtype=torch.uint8, generator=generator)

    return TaskImages("made/up", images(100), images(30), images(21))


def test_transductive_pool_is_the_test_set(parts: TaskImages) -> None:
    task = parts.task("transductive", seed=0)
    assert torch.equal(task.pool, task.test)
    assert as_rows(task.pool) == as_rows(parts.normal) | as_rows(parts.anomalous)
    assert as_rows(task.test[task.test_labels == 1]) == as_rows(parts.anomalous)


def test_inductive_halves_are_stratified_and_disjoint(parts: TaskImages) -> None:
    task = parts.task("inductive", seed=3)
    assert not as_rows(task.pool) & as_rows(task.test)
    assert len(as_rows(task.pool) & as_rows(parts.normal)) == 15
    assert len(as_rows(task.pool) & as_rows(parts.anomalous)) == 10
    assert (len(task.test), task.test_labels.sum()) == (26, 11)
    assert torch.equal(task.train, parts.train)
    assert as_rows(task.pool) != as_rows(parts.task("inductive", seed=4).pool)
    assert torch.equal(task.pool, parts.task("inductive", seed=3).pool)


@pytest.mark.parametrize(("share", "n_normal", "n_defects"), [(0.05, 60, 3), (0.3, 23, 10)])
def test_pool_of_given_contamination(
    parts: TaskImages, share: float, n_normal: int, n_defects: int
) -> None:
    task = parts.task("inductive", 0, share)
    pool = as_rows(task.pool)
    assert len(task.pool) == n_normal + n_defects
    assert len(pool & as_rows(parts.anomalous)) == n_defects
    from_train = pool & as_rows(parts.train)
    assert len(from_train) == n_normal - 15  # the rest is half of those beside the training ones
    assert len(task.train) == 100 - len(from_train)
    assert not pool & (as_rows(task.train) | as_rows(task.test))
    assert task.test_labels.sum() == 21 - n_defects


def test_the_order_of_a_pool_tells_nothing(parts: TaskImages) -> None:
    """Anomalies are spread: a rank test of place against label is far from certain."""
    places = [
        np.flatnonzero(parts.task("transductive", seed).test_labels).mean() for seed in range(40)
    ]
    assert abs(np.mean(places) - 25) < 1.5  # the middle of 51 places


def test_demonstrative_tasks_share_their_normal_images(tmp_path: Path) -> None:
    one, other = (demonstrative(name, Reading(32), None, 0) for name in ("0.01/1", "0.16/4"))
    assert torch.equal(one.train, other.train)
    clean = as_rows(one.pool[one.test_labels == 0])
    assert clean == as_rows(other.pool[other.test_labels == 0])
    write_images(tmp_path / "normal", 30, 200)
    own = demonstrative("0.04/1", READING, tmp_path / "normal", 0)
    assert (len(own.train), len(own.pool), own.test_labels.sum()) == (20, 10, 5)
    with pytest.raises(ValueError, match="unknown demonstrative task"):
        demonstrative("0.5/1", READING, None, 0)
