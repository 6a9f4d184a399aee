"""Labels, the order in which images are proposed, groups, and what a refit learns."""

import csv
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from command import run
from PIL import Image
from small_run import assert_one_sentence

from stssad import STSSAD, Run
from stssad.deploy.export import export_onnx
from stssad.encoders.features import Features, NormalFeatures
from stssad.experiments.testbeds.synthetic import texture_crops
from stssad.methods.refit import N_PATCHES, FarPatches, RefitData, relearn, unseen_scores
from stssad.review.labels import Label, Labels, read_labels, write_labels
from stssad.review.order import N_DOUBTFUL, propose_order, wilson_interval
from stssad.runs.folder import RunFolder
from stssad.runs.refit import refit_model, refit_run, save_threshold
from stssad.scoring.examples import WEIGHT, Examples
from stssad.scoring.folds import random_folds
from stssad.scoring.gaussian import GaussianDensity
from stssad.scoring.groups import group_anomalies
from stssad.scoring.memory_bank import MemoryBank, highest, nearest_distances
from stssad.scoring.score import PretrainedScore
from stssad.scoring.tail import NormalTail
from stssad.scoring.threshold import reviewed_threshold
from stssad.storage.files import read_tensors, write_tensors

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
    done = run(
        "fit",
        "--normal",
        made / "good",
        "--unlabeled",
        made / "pool",
        "--out",
        made / "run",
        "--max-iterations",
        1,
        "--tuning-size",
        32,
        "--jobs",
        1,
        "--augmentation",
        "patch",
    )
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture()
def own(folder: Path, tmp_path: Path) -> Path:
    """A copy of the run that may be changed."""
    return Path(shutil.copytree(folder / "run", tmp_path / "run"))


def labels_file(folder: Path, path: Path, words: dict[int, str]) -> Path:
    rows = Run.open(folder / "run").predictions()
    lines = [f"{rows[i].image_path},{word}" for i, word in words.items()]
    path.write_text("image_path,label\n" + "\n".join(lines) + "\n")
    return path


def test_the_latest_label_counts_and_can_be_undone(tmp_path: Path) -> None:
    labels = Labels(tmp_path)
    odd = 'a "b",\udcff\n.png'
    labels.add(odd, "good", "ann")
    labels.add("b.png", "defect", "bob")
    labels.add(odd, "defect", "bob")
    assert {m.image: m.label for m in labels.all().values()} == {odd: "defect", "b.png": "defect"}
    assert labels.undo("bob") == odd and odd not in labels.all()
    assert labels.undo("ann") is None  # hers was overruled
    assert labels.undo("bob") == "b.png" and labels.undo("bob") is None
    labels.add(odd, "unsure", "ann")
    with open(tmp_path / "m.csv", "w", encoding="utf-8", errors="surrogateescape") as file:
        write_labels(Labels(tmp_path).all().values(), file)
    assert {m.image: m.label for m in read_labels(tmp_path / "m.csv").values()} == {odd: "unsure"}
    with pytest.raises(ValueError, match="a label is good, defect, unsure"):
        labels.add("c.png", "bad")


def test_rows_without_a_label_are_passed_over(tmp_path: Path) -> None:
    """So that the list of all images that the studio exports can be read back."""
    path = tmp_path / "list.csv"
    path.write_text("\ufeffrank,label,image_path\n1,,a.png\n2,good,'=b.png\n", "utf-8")
    assert {m.image: m.label for m in read_labels(path).values()} == {"=b.png": "good"}


def test_many_people_label_at_once_and_no_label_is_lost(tmp_path: Path) -> None:
    labels = Labels(tmp_path)

    def work(who: int) -> None:
        for k in range(25):
            labels.add(f"{who}-{k}.png", "good", str(who))

    threads = [threading.Thread(target=work, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(labels.all()) == 150


def test_a_damaged_file_of_labels_is_named(tmp_path: Path) -> None:
    (tmp_path / "labels.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(ValueError, match="is damaged"):
        Labels(tmp_path)


def test_doubtful_images_come_first_then_one_of_each_group() -> None:
    scores = np.linspace(-5, 5, 101)
    groups = [-1] * 50 + [0] * 30 + [1] * 21
    order = propose_order(scores, 0.05, groups, labeled=[51])
    first = order[:N_DOUBTFUL]
    assert sorted(first) == [46, 47, 48, 49, 50, 52, 53, 54, 55, 56]
    assert 51 not in order and sorted(order) == [i for i in range(101) if i != 51]
    assert order[N_DOUBTFUL : N_DOUBTFUL + 2] == [79, 100]  # the clearest of each group


def test_wilson_intervals() -> None:
    assert wilson_interval(0, 0) == (0, 1)
    low, high = wilson_interval(8, 10)
    assert low == pytest.approx(0.490, abs=2e-3) and high == pytest.approx(0.943, abs=2e-3)
    assert wilson_interval(10, 10)[1] == pytest.approx(1)


def test_groups_are_as_many_as_there_are() -> None:
    rng = np.random.default_rng(0)
    centers = 3 * np.eye(20)[:3]
    rows = np.concatenate([center + 0.3 * rng.normal(size=(12, 20)) for center in centers])
    found = group_anomalies(rows.astype(np.float32))
    assert len(set(found)) == 3
    assert all(len(set(found[k : k + 12])) == 1 for k in (0, 12, 24))
    one = group_anomalies(rng.normal(size=(40, 200)).astype(np.float32))
    assert set(one) == {0}
    assert set(group_anomalies(np.ones((30, 5), np.float32))) == {0}
    assert group_anomalies(rows[:4].astype(np.float32)).tolist() == [0] * 4


def test_stored_patches_give_the_scores_that_a_larger_bank_gives() -> None:
    """Against a bank that holds the good images' patches, compared with every patch."""
    generator = torch.Generator().manual_seed(0)
    bank = MemoryBank(n_highest=3)
    bank.bank = torch.randn(50, 6, generator=generator)
    patches = torch.randn(8, 40, 6, generator=generator)
    distances = nearest_distances(patches.flatten(0, 1), bank.bank).reshape(8, 40)
    top = distances.topk(N_PATCHES)
    index = top.indices[:, :, None].expand(-1, -1, 6)
    far = FarPatches(patches.gather(1, index), top.values)
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
    path = labels_file(folder, tmp_path / "m.csv", {**false, **{i: "defect" for i in range(6)}})
    model, compared = refit_model(run_, read_labels(path))
    before = run_.model()
    assert (compared.n_good, compared.n_defects) == (6, 6)
    assert len(model.normal_scores_) == len(before.normal_scores_)
    assert model.lesson_ is not None and model.lesson_.n_outliers >= 6
    for side, of in ((compared.before, before), (compared.after, model)):
        flagged = of.decision_scores_ > of.threshold_
        assert (side.n_flagged, side.true) == (flagged.sum(), flagged[:6].sum())
        assert (side.false, side.missed) == (flagged[list(false)].sum(), 6 - side.true)
    after, old = model.model_.scorer, before.model_.scorer
    assert isinstance(after, PretrainedScore) and isinstance(old, PretrainedScore)
    assert [len(bank.bank) for bank in after.banks] == [
        len(bank.bank) + 6 * min(N_PATCHES, side * side)
        for bank, side in zip(old.banks, (4, 2), strict=True)
    ]
    fresh = model.decision_function(folder / "pool")
    unlabeled = [i for i in range(N_POOL) if i not in false and i >= 6]
    np.testing.assert_allclose(fresh[unlabeled], model.decision_scores_[unlabeled], atol=0.02)
    assert (fresh[:6] > model.decision_scores_[:6]).all()  # as if nobody had labeled them
    model.save(tmp_path / "saved")
    again = STSSAD.load(tmp_path / "saved").decision_function(folder / "pool")
    np.testing.assert_allclose(again, fresh, rtol=1e-9)
    export_onnx(model, tmp_path / "m.onnx", {})
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    pixels = np.stack([np.asarray(Image.open(p)) for p in sorted((folder / "pool").iterdir())])
    found = session.run(["pred_score"], {session.get_inputs()[0].name: pixels})[0]
    others = [*range(6), *unlabeled]  # the logarithm of a distance that is nearly 0 says little
    np.testing.assert_allclose(found[others], fresh[others], atol=1e-3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_labeled_defects_raise_what_resembles_them(seed: int) -> None:
    """Of embeddings alone: unlabeled ones are separated better from normal ones."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(282, 20, generator=generator)
    train, relit, pool = rows[:200], rows[:2] + 0.01 * rows[200:202], rows[202:]
    pool[:40, 5] += 1.5  # too little to be outliers by themselves
    source = torch.arange(2)
    normal = NormalFeatures(Features(train), Features(relit), source)
    score = PretrainedScore()
    score.calibrate(score.fit(normal, random_folds(200, 0), 0))
    folds = torch.arange(len(pool)) % 10
    data = RefitData(train, relit, source, [], pool, folds, [], pool[:0], [])
    before, after = (  # without and with labeled defects; the good ones are the same
        relearn(score, data, np.arange(40, 50), np.arange(n), 0).pool_scores for n in (0, 20)
    )
    defects, normals = slice(20, 40), slice(50, 80)
    aucs = [float((x[defects, None] > x[None, normals]).float().mean()) for x in (before, after)]
    assert aucs[1] > aucs[0] + 0.1


def test_labels_are_copied_to_a_refitted_run(folder: Path, tmp_path: Path, own: Path) -> None:
    """A second review begins where the first one ended, and refits from all labels."""
    labels = {**{i: "defect" for i in range(5)}, 20: "good", 21: "unsure"}
    path = labels_file(folder, tmp_path / "m.csv", labels)
    done = refit_run(Run.open(own), read_labels(path), tmp_path / "second", "by a test")
    second = Run.open(tmp_path / "second")
    labels = Labels(second.folder).all()
    assert {x.label for x in labels.values()} == {"good", "defect", "unsure"} and len(labels) == 7
    again = refit_run(second, labels, tmp_path / "third", "by a test")
    assert again.after == replace(done.after, threshold=again.after.threshold)
    third = Run.open(tmp_path / "third").summary()
    assert third.threshold == pytest.approx(second.summary().threshold, abs=0.02)


@pytest.mark.parametrize(
    "forged",
    [
        {"pool": torch.zeros(3, 5)},
        {"normal": torch.zeros(50)},
        {"source": torch.full((50,), 99)},
        {"distances_0": torch.zeros(36, 0)},
        {"patches_1": torch.zeros(36, 4, 3)},
        {"relit": torch.full((2, 944), float("nan"))},
        {"patches_normal_1": None},
        {"pool": None},
        {"distances_normal_0": torch.zeros(50, 16, 2)},
    ],
)
def test_forged_files_of_a_refit_are_one_sentence(
    own: Path, folder: Path, tmp_path: Path, forged: dict[str, torch.Tensor | None]
) -> None:
    """With a checksum that is right."""
    tensors = read_tensors(RunFolder(own).refit) | {
        k: v for k, v in forged.items() if v is not None
    }
    left = {name: tensor for name, tensor in tensors.items() if forged.get(name, 0) is not None}
    write_tensors(RunFolder(own).refit, left)
    path = labels_file(folder, tmp_path / "m.csv", {0: "defect", 20: "good"})
    with pytest.raises(ValueError, match="is damaged"):
        refit_model(Run.open(own), read_labels(path))


def test_what_resembles_a_labeled_defect_gains() -> None:
    """By hand: cosines in the whitened space, and nothing resembles itself."""
    Z = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    density = GaussianDensity().fit(Z)
    defects, good = torch.tensor([[9.0, 0, 0, 0], [0, 9, 0, 0]]), torch.tensor([[0.0, 0, 0, 9]])
    new = torch.tensor([[4.0, 0.5, 0, 0], [0, 0, 0, 5], [0, 0, -4, 0.1], [9, 0, 0, 0]])
    plain = density.distance(new)
    density.examples = Examples(defects, good)

    def unit(rows: torch.Tensor) -> torch.Tensor:
        w = (rows - Z.mean(0)).double() @ density.whitening.inverse.T
        return w / w.norm(dim=1, keepdim=True)

    of_defect = (unit(new) @ unit(defects).T).clamp_min(0).amax(1)
    of_good = (unit(new) @ unit(good).T).clamp_min(0).amax(1)
    factor = 1 + WEIGHT * (of_defect - of_good).clamp_min(0)
    torch.testing.assert_close(density.distance(new), plain * factor, rtol=1e-4, atol=1e-6)
    assert factor[0] > 5 and factor[1] == 1 and factor[3] > 8
    own = torch.tensor([-1, 2, -1, 0])
    torch.testing.assert_close(density.distance(new, own)[0], density.distance(new)[0])
    assert density.distance(new, own)[3] < 0.5 * density.distance(new)[3]


def test_labels_move_the_threshold_within_bounds() -> None:
    tail = NormalTail.of(np.random.default_rng(0).normal(0, 1, 1000))
    low, high = (tail.threshold(rate) for rate in (0.015, 0.002))
    a, b, c, d = np.linspace(low, high, 6)[1:-1]

    def moved(good: list[float], defects: list[float]) -> float:
        return reviewed_threshold(tail, np.array(good), np.array(defects), 0.01)

    assert moved([b, 0.0], [c, 9.0]) == pytest.approx((b + c) / 2, abs=0.01)
    assert moved([0.0], [a, b]) == pytest.approx((low + a) / 2, abs=0.01)
    assert moved([d], [9.0]) == pytest.approx((d + high) / 2, abs=0.01)
    assert low <= moved([], [2.0]) <= high and low <= moved([9.0], []) <= high
    lower = reviewed_threshold(tail, np.array([]), np.array([low - 0.5]), 0.01, before=low - 1)
    assert low - 1 <= lower < low - 0.5  # the pool's own threshold may have been lower


def test_refit_by_the_command_line(folder: Path, tmp_path: Path, own: Path) -> None:
    path = labels_file(folder, tmp_path / "m.csv", {0: "defect", 20: "good", 21: "unsure"})
    done = run("refit", own, "--labels", path, "--out", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "Of 1 image labeled defect 1 → 1 flagged; of 1 labeled good 0 → 0 wrongly" in text
    assert "Nothing changed: the score learns from 5 defects on." in text
    assert {"report.html", "scores.csv", "labels.csv"} <= {
        p.name for p in (tmp_path / "new").iterdir()
    }
    scored = run("score", tmp_path / "new", folder / "pool", "--out", tmp_path / "s.csv")
    assert scored.returncode == 0, scored.stderr
    assert_one_sentence(
        run("refit", own, "--labels", path, "--out", tmp_path / "new"), "isn't empty"
    )
    assert_one_sentence(run("refit", own, "--out", tmp_path / "x"), "nothing is labeled")
    path.write_text("image_path,label\nelsewhere.png,good\n")
    assert_one_sentence(
        run("refit", own, "--labels", path, "--out", tmp_path / "x"), "isn't in the"
    )
    path.write_text("image_path,label\na.png,bad\n")
    assert_one_sentence(run("review", own, "--labels", path), "a label is good, defect, unsure")
    assert not (tmp_path / "x").exists()


def test_review_by_the_command_line(folder: Path, tmp_path: Path, own: Path) -> None:
    path = labels_file(folder, tmp_path / "m.csv", {0: "defect", 30: "good"})
    done = run("review", own, "--labels", path, "--out", tmp_path / "all.csv", "--next", 3)
    assert done.returncode == 0, done.stderr
    assert "2 of 36 images are labeled: 1 good, 1 defect" in done.stdout
    assert "recall 100 %" in done.stdout and len(read_labels(tmp_path / "all.csv")) == 2
    named = done.stdout.strip().splitlines()[-3:]
    assert all(Path(name).is_file() for name in named)


def test_the_papers_method_says_why_not(fitted: Path, tmp_path: Path) -> None:
    path = labels_file(fitted, tmp_path / "m.csv", {0: "good"})
    assert_one_sentence(
        run("refit", fitted / "run", "--labels", path, "--out", tmp_path / "x"), "pretrained method"
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


def test_a_run_with_held_out_images_is_refitted(folder: Path, tmp_path: Path) -> None:
    """Normal scores stay those of the held-out images, by the score that has learned."""
    done = run(
        "fit",
        "--normal",
        folder / "good",
        "--unlabeled",
        folder / "pool",
        "--out",
        tmp_path / "run",
        "--max-iterations",
        1,
        "--tuning-size",
        32,
        "--jobs",
        1,
        "--augmentation",
        "patch",
        "--holdout-share",
        0.3,
    )
    assert done.returncode == 0, done.stderr
    opened = Run.open(tmp_path / "run")
    rows = opened.predictions()
    labels = {i: "good" if i >= N_DARK else "defect" for i in (0, 1, 2, 3, 4, 20, 21)}
    labels = {rows[i].image_path: Label(rows[i].image_path, word) for i, word in labels.items()}
    refit_run(opened, labels, tmp_path / "new", "by a test")
    model = Run.open(tmp_path / "new").model()
    assert len(model.normal_scores_) == len(model.held_out_index_) == 15
    held_out = [sorted((folder / "good").iterdir())[i] for i in model.held_out_index_]
    np.testing.assert_allclose(model.decision_function(held_out), model.normal_scores_, atol=0.02)
    again = refit_run(Run.open(tmp_path / "new"), labels, tmp_path / "third", "by a test")
    assert (again.n_good, again.n_defects) == (2, 5)
