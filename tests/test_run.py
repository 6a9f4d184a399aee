"""The command line from two folders to a run: bad files, bad folders, stops at any moment."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from command import run
from PIL import Image
from small_run import TINY, assert_one_sentence, fit, make_folders, save_crops

from stssad import STSSAD, Run
from stssad.storage.files import read_tensors

COMMAND = str(Path(sys.executable).with_name("stssad"))
FILES = {
    ".lock",
    "environment.json",
    "history.csv",
    "model.json",
    "model.safetensors",
    "report.html",
    "report.safetensors",
    "scores.csv",
}


@pytest.fixture()
def folders(tmp_path: Path) -> Path:
    return make_folders(tmp_path)


def test_fit_writes_the_run(fitted: Path) -> None:
    assert {path.name for path in (fitted / "run").iterdir()} == FILES
    with open(fitted / "run" / "scores.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["image_path", "pred_score", "pred_label", "p_value", "q_value"]
    assert [Path(r["image_path"]).name for r in rows] == [f"{i:02d}.png" for i in range(16)]
    with open(fitted / "run" / "history.csv", encoding="utf-8") as file:
        history = list(csv.DictReader(file))
    assert len(history) == 4 * 2 and {"restart", "train_loss", "area", "direct_gradient_2"} <= set(
        history[0]
    )
    facts = json.loads((fitted / "run" / "environment.json").read_text())
    assert facts["n_normal"] == 30 and facts["packages"]["torch"].startswith("2.")
    assert facts["command"].startswith("stssad fit --normal")


@pytest.mark.bit_identical
def test_scores_by_cli_by_python_and_after_loading_are_equal(fitted: Path, tmp_path: Path) -> None:
    paths = sorted((fitted / "pool").iterdir())
    model = STSSAD.load(fitted / "run")
    by_python = model.decision_function(fitted / "pool")
    np.testing.assert_array_equal(by_python, model.decision_scores_)
    np.testing.assert_array_equal(by_python, model.decision_function(paths))
    assert (
        run("score", fitted / "run", fitted / "pool", "--out", tmp_path / "s.csv").returncode == 0
    )
    of_fit = (fitted / "run" / "scores.csv").read_text().splitlines()
    without_q = [row.rsplit(",", 1)[0] for row in of_fit]
    assert (tmp_path / "s.csv").read_text().splitlines() == without_q
    with open(tmp_path / "s.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(r["pred_score"]) for r in rows] == by_python.tolist()
    assert [int(r["pred_label"]) for r in rows] == model.predict(paths).tolist()


def test_score_reads_folders_lists_and_standard_input_and_writes_json(
    fitted: Path, tmp_path: Path
) -> None:
    paths = sorted((fitted / "pool").iterdir())[:3]
    text = "".join(f"{path}\n" for path in paths)
    (tmp_path / "list.txt").write_text(text)
    by_list = run("score", fitted / "run", tmp_path / "list.txt")
    by_input = run("score", fitted / "run", "-", input=text)
    assert by_list.returncode == by_input.returncode == 0
    assert by_list.stdout == by_input.stdout and len(by_list.stdout.splitlines()) == 4
    as_json = json.loads(run("score", fitted / "run", "-", "--format", "json", input=text).stdout)
    assert [row["image_path"] for row in as_json] == [str(path) for path in paths]
    rows = list(csv.DictReader(by_list.stdout.splitlines()))
    assert [float(r["pred_score"]) for r in rows] == [r["pred_score"] for r in as_json]


def test_score_takes_one_image_and_another_false_alarm_rate(fitted: Path, tmp_path: Path) -> None:
    image = sorted((fitted / "pool").iterdir())[0]
    one = run("score", fitted / "run", image)
    assert [Path(r["image_path"]) for r in csv.DictReader(one.stdout.splitlines())] == [image]
    words = ["score", fitted / "run", fitted / "pool", "--out", tmp_path / "s.csv"]
    few, many = (run(*words, "--false-alarms", rate).stdout for rate in (0.01, 0.9))
    model = STSSAD.load(fitted / "run").set_threshold(0.9)
    flagged = int(model.labels_.sum())
    assert f"16 images scored, {flagged} flagged (false alarm rate 90 %)" in many and flagged > 5
    lowest = 100 * model.tail_.lowest_rate  # 1 % can't be kept with so few normal images
    assert lowest > 1 and f"(false alarm rate {lowest:.2g} %)" in few
    assert_one_sentence(run(*words, "--false-alarms", 0), "must lie between 0 and 1, got 0")


def test_a_run_is_opened_as_it_was_written(fitted: Path) -> None:
    opened = Run.open(fitted / "run")
    rows = opened.predictions()
    assert [row.pred_score for row in rows] == opened.model().decision_scores_.tolist()
    summary = opened.summary()
    assert summary.threshold == opened.model().threshold_ and summary.method == "paper"
    assert [row.pred_label for row in rows] == summary.flagged.astype(int).tolist()
    assert opened.report.is_file() and opened.metadata["title"] == "run"
    with pytest.raises(FileNotFoundError, match="give a folder that `stssad fit` has finished"):
        Run.open(fitted)


def test_a_run_killed_before_its_page_gets_it_on_resume(fitted: Path) -> None:
    page = fitted / "run" / "report.html"
    before = page.read_text()
    page.unlink()
    assert "nothing to do" in fit(fitted, "--resume").stdout
    assert page.read_text() == before


def test_report_is_built_again_the_same(fitted: Path) -> None:
    page = fitted / "run" / "report.html"
    before = page.read_text()
    page.unlink()
    done = run("report", fitted / "run")
    assert done.returncode == 0 and page.read_text() == before


def test_the_run_can_be_repeated_from_python(fitted: Path) -> None:
    loaded = STSSAD.load(fitted / "run")
    again = STSSAD("paper", settings=loaded.settings).fit(fitted / "good", fitted / "pool")
    np.testing.assert_array_equal(again.decision_scores_, loaded.decision_scores_)


# --- bad files -------------------------------------------------------------------------------


def damage(folder: Path) -> list[str]:
    """Every kind of file that can't be read, and what is said of it."""
    (folder / "empty.png").touch()
    (folder / "text.jpg").write_text("not an image")
    whole = folder / "whole.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (90, 90, 3), np.uint8)).save(whole)
    (folder / "truncated.jpg").write_bytes(whole.read_bytes()[:1500])
    whole.unlink()
    bomb = Image.new("1", (20000, 20000))
    bomb.save(folder / "bomb.png")
    (folder / "folder.png").mkdir()
    return ["empty.png", "text.jpg", "truncated.jpg", "bomb.png"]


def test_unreadable_files_are_named_counted_and_left_out(folders: Path) -> None:
    bad = damage(folders / "pool")
    (folders / "pool" / "notes.txt").write_text("skipped without a word")
    done = fit(folders)
    assert done.returncode == 0, done.stderr
    for name in bad:
        assert f"{name}'" in done.stderr
    assert "4 file(s) could not be read" in done.stderr
    assert "16 unlabeled images" in done.stdout
    assert "notes.txt" not in done.stderr and "folder.png" not in done.stderr
    facts = json.loads((folders / "run" / "environment.json").read_text())
    assert len(facts["unreadable"]) == 4
    scored = run("score", folders / "run", folders / "pool")
    assert len(scored.stdout.splitlines()) == 17 and "4 file(s)" in scored.stderr
    assert_one_sentence(run("score", folders / "run", folders / "pool", "--strict"), "bomb.png")


def test_strict_stops_at_an_unreadable_file(folders: Path) -> None:
    damage(folders / "good")
    done = fit(folders, "--strict")
    assert_one_sentence(done, "good/bomb.png': it has too many pixels")
    assert not (folders / "run").exists()


def test_a_file_without_permission_is_unreadable(tmp_path: Path) -> None:
    from stssad.images.decode import UnreadableError, read_image
    from stssad.images.reading import Reading

    path = tmp_path / "secret.png"
    Image.new("RGB", (8, 8)).save(path)
    read_image(path, Reading(8))
    path.chmod(0)
    for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(UnreadableError, match="no permission to read it"):
            read_image(path, Reading(8))
    finally:
        if root:
            os.seteuid(0)


# --- bad folders and words -------------------------------------------------------------------


def test_a_missing_folder_is_named(folders: Path) -> None:
    assert_one_sentence(fit(folders, "--normal", folders / "god"), "no such folder")


def test_nothing_readable_is_an_error(folders: Path) -> None:
    empty = folders / "empty"
    empty.mkdir()
    assert_one_sentence(fit(folders, "--normal", empty), "no images in")
    (empty / "x.png").touch()
    done = fit(folders, "--normal", empty)
    assert done.returncode == 2 and "none of the 1 files could be read" in done.stderr


def test_too_few_images_say_how_many_are_needed_and_why(folders: Path) -> None:
    save_crops(folders / "few", 3, seed=2)
    assert_one_sentence(
        fit(folders, "--normal", folders / "few"),
        "train holds 3 image(s), but at least 4 are needed to learn what normal images have",
    )


def test_the_same_file_in_both_folders_is_refused(folders: Path) -> None:
    (folders / "pool" / "copy.png").write_bytes((folders / "good" / "03.png").read_bytes())
    assert_one_sentence(fit(folders), "03.png' and")
    assert_one_sentence(fit(folders, "--unlabeled", folders / "good"), "are the same file")


def test_a_folder_of_the_users_own_is_left_alone(folders: Path) -> None:
    own = folders / "run"
    (own / "checkpoints").mkdir(parents=True)
    (own / "scores.csv").write_text("mine")
    assert_one_sentence(fit(folders), "isn't empty and isn't a run; give --out a new folder")
    assert (own / "scores.csv").read_text() == "mine"
    assert sorted(path.name for path in own.iterdir()) == ["checkpoints", "scores.csv"]


def test_a_finished_run_is_not_resumed_with_other_settings(fitted: Path) -> None:
    other = fit(fitted, "--resume", "--seed", 7)
    assert_one_sentence(other, "was begun with seed 0, not 7; resume it with the same")


def test_a_folder_that_holds_another_run_is_left_alone(fitted: Path, folders: Path) -> None:
    before = (fitted / "run" / "model.safetensors").read_bytes()
    assert_one_sentence(fit(fitted), "holds a finished run; give another --out")
    assert (fitted / "run" / "model.safetensors").read_bytes() == before
    assert "nothing to do" in fit(fitted, "--resume").stdout


@pytest.mark.parametrize(
    "words,message",
    [
        (["--preset", "fast"], "unknown preset 'fast'; use quick, paper_mvtec, paper_svhn"),
        (["--device", "cuda"], "--device cuda can't be used here"),
        (["--false-alarms", "1.5"], "--false-alarms must lie between 0 and 1, got 1.5"),
        (["--aspect", "squash"], "Settings.aspect is 'squash'; use stretch, crop, pad"),
        (["--width", "0"], "Settings.width must be positive, got 0"),
        (["--settings", "nowhere.toml"], "no such file: 'nowhere.toml'"),
        (["--method", "pretrained"], "--width belongs to the method 'paper'; add --method paper"),
        (["--encoder", "vgg"], "unknown encoder 'vgg'; use efficientnetlite0, efficientnetlite1"),
        (["--encoder", "efficientnet_lite0"], "EfficientNetLite0 keeps its weights"),
        (["--augmentation", "patch,smudge"], "unknown augmentation 'smudge'; use patch, scratch"),
    ],
)
def test_wrong_words_are_refused_in_a_sentence(
    folders: Path, words: list[str], message: str
) -> None:
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert_one_sentence(fit(folders, *words), message)


def test_settings_come_from_a_toml_file_and_flags_win(folders: Path) -> None:
    file = folders / "settings.toml"
    file.write_text("momentum = 0.5\nwidth = 8\n")
    assert fit(folders, "--settings", file, "--quiet").stdout == ""
    settings = STSSAD.load(folders / "run").settings
    assert settings is not None and settings.momentum == 0.5 and settings.width == 4
    file.write_text("momentun = 0.5\n")
    assert_one_sentence(fit(folders, "--settings", file), "sets 'momentun', which is no setting")
    file.write_text("momentum = \n")
    assert_one_sentence(fit(folders, "--settings", file), "is not TOML")


def test_a_wrong_run_folder_is_named(folders: Path) -> None:
    assert_one_sentence(run("score", folders, folders / "pool"), "no model.json in")
    assert_one_sentence(run("report", folders), "no model.json in")


# --- stopping and going on -------------------------------------------------------------------

LONGER = ["--warm-start-epochs", 12, "--max-iterations", 14]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_folders(tmp_path_factory.mktemp("unbroken"))
    assert fit(folder, *LONGER).returncode == 0
    return folder


def start_and_kill(
    folder: Path, n_checkpoints: int, seconds: float, kind: int, *more: object
) -> str:
    """Begin a fit; when so many restarts have kept their state, wait a little and kill it."""
    words = [
        "fit",
        "--normal",
        folder / "good",
        "--unlabeled",
        folder / "pool",
        "--out",
        folder / "run",
        "--jobs",
        1,
        *TINY,
        *LONGER,
        *more,
    ]
    process = subprocess.Popen(
        [COMMAND, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As at a terminal: where the tests themselves run in the background, Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 100
    while len(list(folder.glob("run/checkpoints/*.safetensors"))) < n_checkpoints:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(kind)
    return process.communicate()[1]


@pytest.mark.parametrize(
    "n_checkpoints,seconds",
    [
        pytest.param(1, 0.0, marks=pytest.mark.bit_identical),
        (4, 0.03),
        pytest.param(0, 1.5, marks=pytest.mark.slow),
        pytest.param(2, 0.11, marks=pytest.mark.slow),
    ],
)
def test_resume_after_kill_9_gives_equal_weights(
    unbroken: Path, folders: Path, n_checkpoints: int, seconds: float
) -> None:
    start_and_kill(folders, n_checkpoints, seconds, signal.SIGKILL)
    assert not (folders / "run" / "model.json").exists()
    if n_checkpoints:
        (folders / "run" / ".scores.csv.123.tmp").write_text("torn")  # as a kill may leave it
    done = fit(folders, *LONGER, "--resume")
    assert done.returncode == 0, done.stderr
    wanted = read_tensors(unbroken / "run" / "model.safetensors")
    got = read_tensors(folders / "run" / "model.safetensors")
    assert wanted.keys() == got.keys()
    assert all(torch.equal(wanted[name], got[name]) for name in wanted)
    assert {path.name for path in (folders / "run").iterdir()} == FILES


def test_ctrl_c_leaves_a_run_that_can_go_on_and_says_so(folders: Path) -> None:
    error = start_and_kill(folders, 1, 0.05, signal.SIGINT)
    assert "stopped;" in error and "--resume" in error and "Traceback" not in error
    assert_one_sentence(
        fit(folders, *LONGER), "a run that was stopped; give another --out, or resume"
    )
    changed = fit(folders, *LONGER, "--resume", "--seed", 5)
    assert_one_sentence(changed, "was begun with seed 0, not 5; resume it with the same")
    assert fit(folders, *LONGER, "--resume").returncode == 0


def test_a_torn_checkpoint_is_named_and_one_of_other_images_refused(folders: Path) -> None:
    start_and_kill(folders, 1, 0.0, signal.SIGKILL)
    checkpoint = folders / "run" / "checkpoints" / "restart-1.safetensors"
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[: len(whole) // 2])
    assert_one_sentence(fit(folders, *LONGER, "--resume"), "restart-1.safetensors' is damaged")
    checkpoint.write_bytes(whole)
    (folders / "pool" / "00.png").unlink()
    assert_one_sentence(fit(folders, *LONGER, "--resume"), "belongs to other images")
