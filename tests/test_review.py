"""Marks, the order in which images are proposed, kinds, and what a refit learns."""

import csv
import shutil
import threading
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from command import run
from PIL import Image
from small_run import assert_one_sentence, make_folders
from small_run import fit as fit_paper

from stssad import STSSAD, Run
from stssad.exported import export_onnx
from stssad.methods.refit import N_KEPT, Far, unseen_scores
from stssad.review.marks import Marks, read_marks, write_marks
from stssad.review.order import N_DOUBTFUL, proposed, wilson
from stssad.review.refitting import KEPT, refit_run, refitted, save_threshold
from stssad.scoring.examples import WEIGHT, Examples
from stssad.scoring.gaussian import GaussianDensity
from stssad.scoring.kinds import kinds_of
from stssad.scoring.memory_bank import MemoryBank, highest, nearest_distances
from stssad.scoring.threshold import reviewed_threshold, threshold_for
from stssad.storage import read_tensors, write_tensors
from stssad.testbeds.synthetic import texture_crops

N_DARK, N_POOL = 9, 36


def save(folder: Path, n: int, seed: int, n_dark: int = 0) -> None:
    """Crops of a texture; the first ones have a dark square."""
    folder.mkdir(parents=True)
    crops = texture_crops("gravel", n, 64, torch.Generator().manual_seed(seed))
    crops[:n_dark, :, 10:26, 12:28] = 0.1
    for i, crop in enumerate(crops):
        pixels = (crop.permute(1, 2, 0) * 255).to(torch.uint8).numpy()
        Image.fromarray(pixels).save(folder / f"{i:02d}.png")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the default method on small images."""
    pytest.importorskip("skimage", reason="textures need the extra `demo`")
    made = tmp_path_factory.mktemp("review")
    save(made / "good", 50, 0)
    save(made / "pool", N_POOL, 1, N_DARK)
    done = run("fit", "--normal", made / "good", "--unlabeled", made / "pool", "--out",
               made / "run", "--max-iterations", 1, "--tuning-size", 32, "--jobs", 1,
               "--augmentation", "patch")  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture()
def own(folder: Path, tmp_path: Path) -> Path:
    """A copy of the run that may be changed."""
    return Path(shutil.copytree(folder / "run", tmp_path / "run"))


def marks_file(folder: Path, path: Path, words: dict[int, str]) -> Path:
    rows = Run.open(folder / "run").predictions()
    lines = [f"{rows[i].image_path},{word}" for i, word in words.items()]
    path.write_text("image_path,mark\n" + "\n".join(lines) + "\n")
    return path


def test_the_last_word_counts_and_can_be_taken_back(tmp_path: Path) -> None:
    marks = Marks(tmp_path)
    odd = 'a "b",\udcff\n.png'
    marks.add(odd, "good", "ann")
    marks.add("b.png", "defect", "bob")
    marks.add(odd, "defect", "bob")
    assert {m.image: m.mark for m in marks.all().values()} == {odd: "defect", "b.png": "defect"}
    assert marks.undo("bob") == odd and odd not in marks.all()
    assert marks.undo("ann") is None  # hers was overruled
    assert marks.undo("bob") == "b.png" and marks.undo("bob") is None
    marks.add(odd, "unsure", "ann")
    with open(tmp_path / "m.csv", "w", encoding="utf-8", errors="surrogateescape") as file:
        write_marks(Marks(tmp_path).all().values(), file)
    assert {m.image: m.mark for m in read_marks(tmp_path / "m.csv").values()} == {odd: "unsure"}
    with pytest.raises(ValueError, match="a mark is good, defect, unsure"):
        marks.add("c.png", "bad")


def test_many_mark_at_once_and_none_is_lost(tmp_path: Path) -> None:
    marks = Marks(tmp_path)

    def work(who: int) -> None:
        for k in range(25):
            marks.add(f"{who}-{k}.png", "good", str(who))

    threads = [threading.Thread(target=work, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(marks.all()) == 150


def test_a_damaged_file_of_marks_is_named(tmp_path: Path) -> None:
    (tmp_path / "marks.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(ValueError, match="is damaged"):
        Marks(tmp_path)


def test_doubtful_images_come_first_then_one_of_each_kind() -> None:
    scores = np.linspace(-5, 5, 101)
    kinds = [-1] * 50 + [0] * 30 + [1] * 21
    order = proposed(scores, 0.05, kinds, marked=[51])
    first = order[:N_DOUBTFUL]
    assert sorted(first) == [46, 47, 48, 49, 50, 52, 53, 54, 55, 56]
    assert 51 not in order and sorted(order) == [i for i in range(101) if i != 51]
    assert order[N_DOUBTFUL : N_DOUBTFUL + 2] == [79, 100]  # the clearest of each kind


def test_wilson_intervals() -> None:
    assert wilson(0, 0) == (0, 1)
    low, high = wilson(8, 10)
    assert low == pytest.approx(0.490, abs=2e-3) and high == pytest.approx(0.943, abs=2e-3)
    assert wilson(10, 10)[1] == pytest.approx(1)


def test_kinds_are_as_many_as_there_are() -> None:
    rng = np.random.default_rng(0)
    centers = 3 * np.eye(20)[:3]
    rows = np.concatenate([center + 0.3 * rng.normal(size=(12, 20)) for center in centers])
    found = kinds_of(rows.astype(np.float32))
    assert len(set(found)) == 3
    assert all(len(set(found[k : k + 12])) == 1 for k in (0, 12, 24))
    one = kinds_of(rng.normal(size=(40, 200)).astype(np.float32))
    assert set(one) == {0}
    assert set(kinds_of(np.ones((30, 5), np.float32))) == {0}
    assert kinds_of(rows[:4].astype(np.float32)).tolist() == [0] * 4


def test_kept_patches_give_the_scores_that_a_larger_bank_gives() -> None:
    """Against a bank that holds the good images' patches, compared with every patch."""
    generator = torch.Generator().manual_seed(0)
    bank = MemoryBank(n_highest=3)
    bank.bank = torch.randn(50, 6, generator=generator)
    patches = torch.randn(8, 40, 6, generator=generator)
    distances = nearest_distances(patches.flatten(0, 1), bank.bank).reshape(8, 40)
    top = distances.topk(N_KEPT)
    index = top.indices[:, :, None].expand(-1, -1, 6)
    far = Far(patches.gather(1, index), top.values)
    good = torch.tensor([2, 5])
    added = far.patches[good].flatten(0, 1)
    larger = torch.cat([bank.bank, added])
    wanted = nearest_distances(patches.flatten(0, 1), larger).reshape(8, 40)
    others = torch.tensor([i for i in range(8) if i not in good])
    found = far.scores(added, bank.n_highest)[others]
    torch.testing.assert_close(found, highest(wanted[others][:, None], 3))
    own = torch.cat([bank.bank, far.patches[5]])  # all but image 2's
    alone = highest(nearest_distances(patches[2], own)[None, None], 3)
    torch.testing.assert_close(unseen_scores(bank, far, good)[:1], alone)


def test_good_ones_join_and_defects_teach(folder: Path, tmp_path: Path) -> None:
    run_ = Run.open(folder / "run")
    false = {i: "good" for i in range(N_DARK, N_DARK + 6)}
    path = marks_file(folder, tmp_path / "m.csv", {**false, **{i: "defect" for i in range(6)}})
    model, compared = refitted(run_, read_marks(path))
    before = run_.model()
    assert (compared.n_good, compared.n_defects) == (6, 6)
    assert len(model.normal_scores_) == len(before.normal_scores_)
    assert model.lesson_ is not None and model.lesson_.n_outliers >= 6
    assert compared.after.recall[0] >= compared.before.recall[0]
    parts = [part for part in model.model_.scorer.parts if isinstance(part, MemoryBank)]
    assert [len(part.bank) for part in parts] == [
        len(part.bank) + 6 * min(N_KEPT, side * side)
        for part, side in zip(list(before.model_.scorer.parts)[1:], (4, 2), strict=True)
    ]
    fresh = model.decision_function(folder / "pool")
    unmarked = [i for i in range(N_POOL) if i not in false and i >= 6]
    np.testing.assert_allclose(fresh[unmarked], model.decision_scores_[unmarked], atol=0.02)
    assert (fresh[:6] > model.decision_scores_[:6]).all()  # kept as if nobody had marked them
    model.save(tmp_path / "saved")
    again = STSSAD.load(tmp_path / "saved").decision_function(folder / "pool")
    np.testing.assert_allclose(again, fresh, rtol=1e-9)
    export_onnx(model, tmp_path / "m.onnx", {})
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    pixels = np.stack([np.asarray(Image.open(p)) for p in sorted((folder / "pool").iterdir())])
    found = session.run(["pred_score"], {session.get_inputs()[0].name: pixels})[0]
    others = [*range(6), *unmarked]  # the logarithm of a distance that is nearly 0 says little
    np.testing.assert_allclose(found[others], fresh[others], atol=1e-3)


def test_marks_go_on_with_a_refitted_run(folder: Path, tmp_path: Path, own: Path) -> None:
    """A second review begins where the first one ended, and refits from all marks."""
    marks = {**{i: "defect" for i in range(5)}, 20: "good", 21: "unsure"}
    path = marks_file(folder, tmp_path / "m.csv", marks)
    done = refit_run(Run.open(own), read_marks(path), tmp_path / "second", "by a test")
    second = Run.open(tmp_path / "second")
    kept = Marks(second.folder).all()
    assert {each.mark for each in kept.values()} == {"good", "defect", "unsure"} and len(kept) == 7
    again = refit_run(second, kept, tmp_path / "third", "by a test")
    assert again.rate == done.rate == pytest.approx(0.01)  # not moved a second time
    third = Run.open(tmp_path / "third").summary()
    assert third.threshold == pytest.approx(second.summary().threshold, abs=0.02)


@pytest.mark.parametrize(
    "forged",
    [
        {"pool": torch.zeros(3, 5)}, {"normal": torch.zeros(50)}, {"source": torch.full((50,), 99)},
        {"distances_0": torch.zeros(36, 0)}, {"patches_1": torch.zeros(36, 4, 3)},
        {"relit": torch.full((2, 944), float("nan"))}, {"patches_normal_1": None},
        {"pool": None}, {"distances_normal_0": torch.zeros(50, 16, 2)},
    ],
)  # fmt: skip
def test_forged_files_of_a_refit_are_one_sentence(
    own: Path, folder: Path, tmp_path: Path, forged: dict[str, torch.Tensor | None]
) -> None:
    """With a checksum that is right."""
    tensors = read_tensors(own / KEPT) | {k: v for k, v in forged.items() if v is not None}
    kept = {name: tensor for name, tensor in tensors.items() if forged.get(name, 0) is not None}
    write_tensors(own / KEPT, kept)
    path = marks_file(folder, tmp_path / "m.csv", {0: "defect", 20: "good"})
    with pytest.raises(ValueError, match="is damaged"):
        refitted(Run.open(own), read_marks(path))


def test_what_resembles_a_marked_defect_gains() -> None:
    """By hand: cosines in the whitened space, and nothing resembles itself."""
    Z = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    density = GaussianDensity().fit(Z)
    defects, good = torch.tensor([[9.0, 0, 0, 0], [0, 9, 0, 0]]), torch.tensor([[0.0, 0, 0, 9]])
    new = torch.tensor([[4.0, 0.5, 0, 0], [0, 0, 0, 5], [0, 0, -4, 0.1], [9, 0, 0, 0]])
    plain = density.distance(new)
    density.examples = Examples(defects, good)

    def unit(rows: torch.Tensor) -> torch.Tensor:
        w = torch.linalg.solve(density.whitening.cholesky, (rows - Z.mean(0)).double().T).T
        return w / w.norm(dim=1, keepdim=True)

    of_defect = (unit(new) @ unit(defects).T).clamp_min(0).amax(1)
    of_good = (unit(new) @ unit(good).T).clamp_min(0).amax(1)
    factor = 1 + WEIGHT * (of_defect - of_good).clamp_min(0)
    torch.testing.assert_close(density.distance(new), plain * factor, rtol=1e-4, atol=1e-6)
    assert factor[0] > 5 and factor[1] == 1 and factor[3] > 8
    own = torch.tensor([-1, 2, -1, 0])
    torch.testing.assert_close(density.distance(new, own)[0], density.distance(new)[0])
    assert density.distance(new, own)[3] < 0.5 * density.distance(new)[3]


def test_marks_move_the_threshold_within_bounds() -> None:
    normal = np.linspace(-2, 3, 1000)
    low, high = (threshold_for(normal, rate, -np.inf) for rate in (0.015, 0.002))

    def moved(good: list[float], defects: list[float]) -> float:
        return reviewed_threshold(normal, np.array(good), np.array(defects), 0.01, -np.inf)

    assert moved([2.94, 0.0], [2.97, 5.0]) == pytest.approx(2.955, abs=0.002)
    assert moved([2.9], [2.94, 2.95]) == pytest.approx((low + 2.94) / 2, abs=0.002)
    assert moved([2.98], [4.0]) == pytest.approx((2.98 + high) / 2, abs=0.002)
    assert low <= moved([], [2.0]) <= high and low <= moved([9.0], []) <= high


def test_refit_by_the_command_line(folder: Path, tmp_path: Path, own: Path) -> None:
    path = marks_file(folder, tmp_path / "m.csv", {0: "defect", 20: "good", 21: "unsure"})
    done = run("refit", own, "--marks", path, "--out", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert "learned from 1 good and 1 defective" in done.stdout
    assert {"report.html", "scores.csv", "marks.csv"} <= {
        p.name for p in (tmp_path / "new").iterdir()
    }
    scored = run("score", tmp_path / "new", folder / "pool", "--out", tmp_path / "s.csv")
    assert scored.returncode == 0, scored.stderr
    assert_one_sentence(
        run("refit", own, "--marks", path, "--out", tmp_path / "new"), "isn't empty"
    )
    assert_one_sentence(run("refit", own, "--out", tmp_path / "x"), "nothing is marked")
    path.write_text("image_path,mark\nelsewhere.png,good\n")
    assert_one_sentence(run("refit", own, "--marks", path, "--out", tmp_path / "x"), "isn't in the")
    path.write_text("image_path,mark\na.png,bad\n")
    assert_one_sentence(run("review", own, "--marks", path), "a mark is good, defect, unsure")
    assert not (tmp_path / "x").exists()


def test_review_by_the_command_line(folder: Path, tmp_path: Path, own: Path) -> None:
    path = marks_file(folder, tmp_path / "m.csv", {0: "defect", 30: "good"})
    done = run("review", own, "--marks", path, "--out", tmp_path / "all.csv", "--next", 3)
    assert done.returncode == 0, done.stderr
    assert "2 of 36 images are marked: 1 good, 1 defect" in done.stdout
    assert "recall 100 %" in done.stdout and len(read_marks(tmp_path / "all.csv")) == 2
    named = done.stdout.strip().splitlines()[-3:]
    assert all(Path(name).is_file() for name in named)


def test_the_papers_method_says_why_not(tmp_path: Path) -> None:
    made = make_folders(tmp_path)
    assert fit_paper(made).returncode == 0
    path = marks_file(made, tmp_path / "m.csv", {0: "good"})
    assert_one_sentence(
        run("refit", made / "run", "--marks", path, "--out", tmp_path / "x"), "pretrained method"
    )


def test_a_threshold_is_kept_with_the_run(own: Path) -> None:
    opened = Run.open(own)
    order = sorted(opened.summary().pool_scores)
    middle = float(order[10] + order[11]) / 2
    assert save_threshold(opened, middle) == N_POOL - 11
    assert opened.model().threshold_ == middle == opened.summary().threshold
    with open(own / "scores.csv", newline="") as file:
        labels = [int(row["pred_label"]) for row in csv.DictReader(file)]
    assert sum(labels) == N_POOL - 11
    with pytest.raises(ValueError, match="finite"):
        save_threshold(opened, float("nan"))


def test_flagged_images_are_copied_and_nothing_is_overwritten(folder: Path, tmp_path: Path) -> None:
    flagged = tmp_path / "flagged"
    flagged.mkdir()
    (flagged / "00.png").write_text("mine")
    words = ["score", folder / "run", folder / "pool", "--out", tmp_path / "s.csv"]
    done = run(*words, "--copy-flagged", flagged)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "s.csv", newline="") as file:
        names = [Path(r["image_path"]).name for r in csv.DictReader(file) if r["pred_label"] == "1"]
    assert (flagged / "00.png").read_text() == "mine" and "00.png" in names
    assert len(list(flagged.iterdir())) == len(names) + 1 and (flagged / "00-2.png").is_file()
    assert_one_sentence(run(*words, "--copy-flagged", folder / "pool"), "the folder of the images")
