"""Files and names from strangers, streams that are odd, processes that meet: one sentence each."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import run
from PIL import Image
from small_run import TINY, assert_one_sentence, fit, make_folders

from stssad import STSSAD, PretrainedSettings, Run, Settings
from stssad.experiments.bench.cell import Store
from stssad.images.decode import read_image, upright_size
from stssad.images.reading import Reading
from stssad.images.source import find_images, find_white_level
from stssad.storage.files import json_digest, read_tensors, write_json, write_tensors

COMMAND = str(Path(sys.executable).with_name("stssad"))


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.DictReader(file))


# --- output ----------------------------------------------------------------------------------


def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(fitted: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "kept" / "scores.csv", tmp_path / "latest.csv"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    assert run("score", fitted / "run", fitted / "pool", "--out", link).returncode == 0
    assert link.is_symlink() and len(rows_of(target)) == 16
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "latest.csv"]


def test_a_pipe_is_written_to_and_stays_a_pipe(fitted: Path, tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert run("score", fitted / "run", fitted / "pool", "--out", pipe).returncode == 0
    reader.join(timeout=10)
    assert pipe.is_fifo() and len(read[0].splitlines()) == 17


def test_an_output_that_cannot_be_written_is_named_before_anything_is_scored(
    fitted: Path, tmp_path: Path
) -> None:
    score = ("score", fitted / "run", fitted / "pool", "--out")
    assert_one_sentence(run(*score, tmp_path / "no" / "x.csv"), "is in no folder that exists")
    assert_one_sentence(run(*score, tmp_path), "is a folder; give a file")


def test_a_closed_standard_output_is_named(fitted: Path) -> None:
    line = f"{COMMAND} score {fitted / 'run'} {fitted / 'pool'} >&-"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert_one_sentence(done, "standard output is closed")


def test_temporary_files_of_the_dead_are_removed(fitted: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.csv"
    assert run("score", fitted / "run", fitted / "pool", "--out", out).returncode == 0
    process = subprocess.Popen(
        [COMMAND, "score", fitted / "run", "-", "--out", out],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (torn := list(tmp_path.glob(".*.tmp"))):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert torn[0].exists()
    assert run("score", fitted / "run", fitted / "pool", "--out", out).returncode == 0
    assert [p.name for p in tmp_path.iterdir()] == ["s.csv"]


# --- names -----------------------------------------------------------------------------------

ODD_NAMES = [
    b"latin\xff1.png",
    b"car\rriage.png",
    "nel\x85.png".encode(),
    "line\u2028separator.png".encode(),
    b'com,ma "quoted".png',
    b"=1+2.png",
    b"new\nline.png",
]


@pytest.fixture()
def odd(fitted: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "odd"
    folder.mkdir()
    pixels = (fitted / "pool" / "00.png").read_bytes()
    for name in [*ODD_NAMES, b"plain.png"]:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(pixels)
    return folder


def test_odd_names_are_written_without_loss_and_cost_the_others_nothing(
    fitted: Path, odd: Path, tmp_path: Path
) -> None:
    wanted = sorted(os.fsencode(odd) + b"/" + name for name in [*ODD_NAMES, b"plain.png"])
    done = run("score", fitted / "run", odd, "--out", tmp_path / "s.csv")
    assert done.returncode == 0, done.stderr
    found = [os.fsencode(row["image_path"]) for row in rows_of(tmp_path / "s.csv")]
    assert sorted(found) == wanted
    assert (
        run(
            "score", fitted / "run", odd, "--format", "json", "--out", tmp_path / "s.json"
        ).returncode
        == 0
    )
    listed = json.loads((tmp_path / "s.json").read_text())
    assert sorted(os.fsencode(row["image_path"]) for row in listed) == wanted


def test_a_fit_with_odd_names_ends_with_all_its_files(odd: Path, tmp_path: Path) -> None:
    folder = make_folders(tmp_path / "more")
    for path in find_images(odd):
        os.rename(path, folder / "pool" / path.name)
    done = fit(folder)
    assert done.returncode == 0, done.stderr
    assert (
        len(rows_of(folder / "run" / "scores.csv")) == 24 == len(Run(folder / "run").predictions())
    )
    assert (folder / "run" / "report.html").read_text(encoding="utf-8")


def test_a_list_may_begin_with_a_byte_order_mark_and_name_a_pipe(
    fitted: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    names = [str(fitted / "pool" / "00.png"), str(tmp_path / "pipe.png")]
    (tmp_path / "list").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(names).encode())
    done = run("score", fitted / "run", tmp_path / "list", "--out", tmp_path / "s.csv")
    assert done.returncode == 0, done.stderr
    assert "pipe.png': it is not a regular file" in done.stderr
    assert [row["image_path"] for row in rows_of(tmp_path / "s.csv")] == names[:1]


def test_what_is_no_image_in_a_folder_is_named(fitted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    (folder / "0.png").write_bytes((fitted / "pool" / "00.png").read_bytes())
    (folder / "dangling.png").symlink_to(tmp_path / "nothing.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    os.mkfifo(folder / "pipe.png")
    done = run("score", fitted / "run", folder, "--out", tmp_path / "s.csv")
    assert done.returncode == 0 and len(rows_of(tmp_path / "s.csv")) == 1
    for name in ("dangling", "loop", "pipe"):
        assert f"{name}.png'" in done.stderr
    assert "3 file(s) could not be read" in done.stderr


# --- deep grey -------------------------------------------------------------------------------


def deep(path: Path, top: int, size: int = 32) -> Path:
    """A ramp from 0 to `top`, 16 bits."""
    ramp = np.linspace(0, top, size * size).reshape(size, size).astype(np.uint16)
    Image.fromarray(ramp).save(path)
    return path


@pytest.mark.parametrize("top,level", [(200, 255), (900, 1023), (4000, 4095), (60000, 65535)])
def test_the_white_level_is_the_least_usual_depth(tmp_path: Path, top: int, level: int) -> None:
    paths = [deep(tmp_path / f"{k}.png", top - k) for k in range(3)]
    assert find_white_level(paths) == level


def test_deep_images_share_one_scale_whatever_their_own_brightest(tmp_path: Path) -> None:
    """Twice as bright in the file is twice as bright in the image, in files of 200, 300 or 4095."""
    reading = Reading(32, white_level=4095)
    tops = [200, 300, 2000, 4095]
    seen = [int(read_image(deep(tmp_path / f"{t}.png", t), reading).max()) for t in tops]
    assert seen == [round(t * 255 / 4095) for t in tops]


def test_a_model_keeps_the_white_level_of_its_normal_images(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for part, n in (("good", 12), ("pool", 6)):
        (tmp_path / part).mkdir()
        for k in range(n):
            values = generator.integers(0, 4000, (40, 40)).astype(np.uint16)
            Image.fromarray(values).save(tmp_path / part / f"{k}.png")
    done = fit(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4095 is white" in done.stdout
    model = STSSAD.load(tmp_path / "run")
    assert model.reading_.white_level == 4095
    dim = deep(tmp_path / "dim.png", 300, 40)
    assert read_image(dim, model.reading_).max() == round(300 * 255 / 4095)
    assert "nothing to do" in fit(tmp_path, "--resume").stdout


def test_eight_bit_images_have_no_white_level(fitted: Path) -> None:
    assert find_white_level(find_images(fitted / "good")) is None
    assert STSSAD.load(fitted / "run").reading_.white_level is None


# --- heatmaps --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_maps(fitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the pretrained method, which has anomaly maps."""
    folder = tmp_path_factory.mktemp("maps") / "run"
    settings = PretrainedSettings(image_size=64, max_iterations=2, val_augmented_samples=4)
    STSSAD(settings=settings).fit(fitted / "good").save(folder)
    return folder


def test_heatmaps_never_overwrite_and_keep_the_ratio(with_maps: Path, tmp_path: Path) -> None:
    images, maps = tmp_path / "images", tmp_path / "maps"
    images.mkdir()
    for name, size in (("a.png", (80, 40)), ("a.jpg", (40, 80)), ("b" * 251 + ".png", (30, 30))):
        Image.new("RGB", size, (120, 130, 90)).save(images / name)
    before = {path: path.read_bytes() for path in images.iterdir()}
    words = ("score", with_maps, images, "--out", tmp_path / "s.csv", "--heatmaps")
    assert_one_sentence(run(*words, images), "holds the images themselves")
    for _ in range(2):
        done = run(*words, maps)
        assert done.returncode == 0, done.stderr
    assert {path: path.read_bytes() for path in images.iterdir()} == before
    names = sorted(path.name for path in maps.iterdir())
    assert len(names) == 6 and {"a.png", "a-2.png", "a-3.png", "a-4.png"} < set(names)
    sizes = sorted(upright_size(maps / name) for name in ("a.png", "a-2.png"))
    assert sizes == [(128, 256), (256, 128)]


# --- models, checkpoints, settings, result lines ----------------------------------------------


def damaged_copy(fitted: Path, folder: Path) -> Path:
    for name in ("model.json", "model.safetensors"):
        (folder / name).write_bytes((fitted / "run" / name).read_bytes())
    return folder


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_damaged_model_is_one_sentence(fitted: Path, tmp_path: Path, name: str) -> None:
    generator = np.random.default_rng(0)
    path = damaged_copy(fitted, tmp_path) / name
    whole = path.read_bytes()
    for case in range(12):
        content = bytearray(whole)
        if case % 3 == 0:
            content = content[: int(generator.integers(0, len(content)))]
        else:
            for at in generator.integers(0, len(content), 1 + case):
                content[at] = int(generator.integers(0, 256))
        path.write_bytes(bytes(content))
        done = run("score", tmp_path, fitted / "pool")
        if done.returncode != 0:
            assert_one_sentence(done, "")
        else:
            assert bytes(content) == whole or "nan" not in done.stdout


FORGED: dict[str, Any] = {
    "image_size": 10**9,
    "explanation chosen": 77,  # of the explanation
    "explanation candidates": [{}],
    "explanation evidence": 5,
    "pool": {},
    "pool contamination": [],
    "score": 5,
    "settings": {"image_size": "x"},
    "encoder": {"class": "ResNet18", "ours": True, "config": {"width": 100000}},
    "method": "other",
    "summary": 5,
    "warnings": None,
    "false_alarms": "x",
    "false_discoveries": -0.5,
    "decision false_alarms": float("nan"),
    "decision false_discoveries": 7.0,
    "decision score": float("inf"),
    "decision source": 5,
    "augmentation": [],
    "val_loss": {},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_model_with_the_right_checksum_is_one_sentence(
    fitted: Path, tmp_path: Path, name: str
) -> None:
    folder = damaged_copy(fitted, tmp_path)
    content = json.loads((folder / "model.json").read_text())
    content.pop("sha256")
    *way, last = name.split()
    target = content
    for key in way:
        target = target[key]
    target[last] = FORGED[name]
    write_json(folder / "model.json", {**content, "sha256": json_digest(content)})
    for words in (("score", folder, fitted / "pool"), ("report", folder)):
        done = run(*words)
        assert done.returncode in (0, 2) and "Traceback" not in done.stderr
        assert "nan" not in done.stdout
    if name not in ("warnings", "summary", "score"):  # of no consequence for the paper's scores
        with pytest.raises(ValueError):
            STSSAD.load(folder)


@pytest.mark.parametrize("how", ["nan", "shape", "missing", "foreign"])
def test_tensors_that_do_not_fit_are_one_sentence(fitted: Path, tmp_path: Path, how: str) -> None:
    folder = damaged_copy(fitted, tmp_path)
    tensors = read_tensors(folder / "model.safetensors")
    name = "scorer.density.whitening.mean"
    if how == "nan":
        tensors[name] = torch.full_like(tensors[name], float("nan"))
    elif how == "shape":
        tensors[name] = tensors[name][:-1]
    elif how == "missing":
        del tensors[name]
    else:
        tensors["scorer.density.forward"] = torch.zeros(1)
    write_tensors(folder / "model.safetensors", tensors)
    assert_one_sentence(run("score", folder, fitted / "pool"), "is damaged")


@pytest.mark.parametrize(
    "text,words",
    [
        ("image_size = 'large'", "image_size must be a whole number"),
        ("image_size = 32.5", "image_size must be a whole number"),
        ("image_size = true", "image_size must be a whole number"),
        ("image_size = 1", "image_size must be at least 8"),
        ("image_size = 100000", "image_size must be at most 4096"),
        ("a_step_size = nan", "a_step_size must be a finite number"),
        ("threads = 100000", "threads must be at most 256"),
        ("aspect = 3", "aspect must be a word"),
        ("batch_size = [1]", "batch_size must be a whole number"),
    ],
)
def test_settings_of_a_wrong_kind_are_named(folder_of_two: Path, text: str, words: str) -> None:
    (folder_of_two / "s.toml").write_text(text)
    done = run(
        "fit",
        "--normal",
        folder_of_two,
        "--unlabeled",
        folder_of_two,
        "--method",
        "paper",
        "--out",
        folder_of_two / "run",
        "--settings",
        folder_of_two / "s.toml",
    )
    assert_one_sentence(done, words)


@pytest.fixture(scope="module")
def folder_of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


def test_a_device_that_holds_no_numbers_is_refused(fitted: Path) -> None:
    assert_one_sentence(run("score", fitted / "run", fitted / "pool", "--device", "meta"), "meta")


@pytest.mark.parametrize(
    "text", ["[]", "5", "{}", '{"testbed": 3}', "{", '{"auc": NaN}', "[" * 9999]
)
def test_a_damaged_result_line_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "tile.jsonl").write_text(text + "\n")
    with pytest.raises(ValueError, match=r"line 1 of .* is damaged"):
        Store(tmp_path).lines("tile")


def test_a_damaged_environment_is_one_sentence(fitted: Path, tmp_path: Path) -> None:
    folder = make_folders(tmp_path / "other")
    for text in ("[]", "{", '{"request": 5}', '{"request": {"settings": 3}}'):
        (folder / "run").mkdir(exist_ok=True)
        (folder / "run" / "environment.json").write_text(text)
        assert_one_sentence(fit(folder, "--resume"), "environment.json' is damaged")


# --- processes -------------------------------------------------------------------------------

LONG = ["--warm-start-epochs", "200", "--max-iterations", "50", "--jobs", "1"]


def begin(folder: Path, *words: str) -> "subprocess.Popen[str]":
    """A fit that has kept its first checkpoint."""
    process = subprocess.Popen(
        [
            COMMAND,
            "fit",
            "--normal",
            folder / "good",
            "--unlabeled",
            folder / "pool",
            "--out",
            folder / "run",
            *TINY,
            *LONG,
            *words,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 100
    while not list(folder.glob("run/checkpoints/*.safetensors")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_sigterm_stops_as_ctrl_c_does_with_143(tmp_path: Path) -> None:
    process = begin(make_folders(tmp_path / "one"))
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 143
    assert "stopped;" in error and "--resume" in error and "Traceback" not in error


def test_a_run_is_resumed_by_one_process_at_a_time(tmp_path: Path) -> None:
    folder = make_folders(tmp_path / "one")
    process = begin(folder)
    other = run(
        "fit",
        "--normal",
        folder / "good",
        "--unlabeled",
        folder / "pool",
        "--out",
        folder / "run",
        *TINY,
        *LONG,
        "--resume",
    )
    process.kill()
    process.communicate()
    assert_one_sentence(other, f"process {process.pid} is working on the run")


def test_sigterm_ends_the_workers_too(tmp_path: Path) -> None:
    process = begin(make_folders(tmp_path / "one"), "--jobs", "2")
    children = descendants(process.pid)
    assert len(children) >= 2
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 143
    deadline = time.monotonic() + 30
    while alive := [pid for pid in children if is_running(pid)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.1)


def descendants(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            child, parent = (
                int(path.parent.name),
                int(path.read_text().rsplit(")", 1)[1].split()[1]),
            )
        except (OSError, IndexError):  # gone meanwhile
            continue
        if parent == pid:
            found += [child, *descendants(child)]
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_whose_folder_is_removed_is_one_sentence(tmp_path: Path) -> None:
    folder = make_folders(tmp_path / "one")
    process = begin(folder)
    shutil.rmtree(folder / "run")
    _, error = process.communicate(timeout=300)
    assert process.returncode == 2 and "Traceback" not in error, error
    assert len(error.strip().splitlines()) == 1, error


def test_a_model_keeps_the_names_of_files_that_could_not_be_read(
    fitted: Path, tmp_path: Path
) -> None:
    folder = make_folders(tmp_path / "one")
    for k in range(9):
        (folder / "good" / f"broken{k}.png").write_bytes(b"no image")
    settings = PretrainedSettings(image_size=64, max_iterations=1, val_augmented_samples=2)
    with pytest.warns(UserWarning) as warned:
        model = STSSAD(settings=settings).fit(folder / "good")
    assert sum("broken" in str(w.message) for w in warned) == 9
    model.save(tmp_path / "model")
    (kept,) = [w for w in STSSAD.load(tmp_path / "model").warnings_ if "left out" in w]
    assert all(f"broken{k}.png" in kept for k in range(9))


# --- Python ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "images,error",
    [
        (torch.rand(5, 3, 32), "must be square images"),
        (torch.rand(5, 4, 32, 32), "must be square images"),
        (torch.rand(5, 3, 32, 30), "must be square images"),
        (torch.full((5, 3, 32, 32), float("nan")), "NaN"),
        (torch.rand(0, 3, 32, 32), "holds no images"),
        (torch.rand(5, 3, 32, 32) * 255, "divide by 255"),
        (np.zeros((5, 32, 32, 3), np.int64), "must be uint8"),
        (np.zeros((5, 32, 32, 3), complex), "images must be"),
        (np.array(["a", "b"]), "images must be"),
        ([], "holds no images"),
        ((x for x in ()), "holds no images"),
        ("no such folder", "no such folder"),
        (5, "images must be"),
        (None, "images must be"),
    ],
)
def test_misuse_from_python_is_a_clear_error(images: Any, error: str) -> None:
    model = STSSAD("paper", settings=Settings.quick(image_size=32, width=4))
    with pytest.raises((ValueError, TypeError, OSError), match=error):
        model.fit(images, torch.rand(5, 3, 32, 32))
