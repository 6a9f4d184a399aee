"""`stssad watch`: every image once, whatever happens to it, to the process, or to the CSV."""

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import run
from small_run import assert_one_sentence

from stssad.deploy.watch import COLUMNS, Log, WatchedImage, parse_whole_rows

pytest.importorskip("watchfiles", reason="in the extra watch")

COMMAND = str(Path(sys.executable).with_name("stssad"))


@pytest.fixture()
def folder(fitted: Path) -> Path:
    """A run, and its images."""
    return fitted


@contextmanager
def watching(*words: object) -> Iterator["subprocess.Popen[str]"]:
    """A watcher that has begun."""
    process = subprocess.Popen(
        [COMMAND, "watch", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        # What a shell starts in the background ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("watching ")
        yield process
    finally:
        process.kill()
        process.communicate()


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.DictReader(file))


def wait_for(path: Path, n: int, seconds: float = 30) -> list[dict[str, str]]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.is_file() and len(found := rows_of(path)) >= n:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{len(rows_of(path))} rows after {seconds} s, wanted {n}")


def line(name: str = "a.png", error: str = "") -> WatchedImage:
    values = (0.5, 1, 0.25, 0.1, -2.5, 0.0, 1e-07)
    return WatchedImage(name, *values, "2026-01-01T00:00:00.000+00:00", 10, 123456789, error)


def test_images_are_scored_as_they_come_and_once(folder: Path, tmp_path: Path) -> None:
    images = sorted((folder / "pool").iterdir())
    arriving, out = tmp_path / "in", tmp_path / "w.csv"
    arriving.mkdir()
    shutil.copy(images[0], arriving / "before.png")
    with watching(folder / "run", arriving, "--out", out) as process:
        wait_for(out, 1)
        for k in range(1, 6):
            shutil.copy(images[k], arriving / f"{k}.png")
        wait_for(out, 6)
        process.send_signal(signal.SIGKILL)
        process.wait()
    shutil.copy(images[6], arriving / "6.png")  # while nobody looked
    with watching(folder / "run", arriving, "--out", out):
        wait_for(out, 7)
        os.replace(
            shutil.copy(images[7], tmp_path / "new.png"), arriving / "1.png"
        )  # another image
        found = wait_for(out, 8)
    names = [Path(row["image_path"]).name for row in found]
    assert sorted(names) == [
        "1.png",
        "1.png",
        "2.png",
        "3.png",
        "4.png",
        "5.png",
        "6.png",
        "before.png",
    ]
    scored = run("score", folder / "run", images[3])
    wanted = float(scored.stdout.splitlines()[1].split(",")[1])
    assert float(found[names.index("3.png")]["pred_score"]) == pytest.approx(wanted, abs=1e-4)


def test_half_written_files_are_waited_for(folder: Path, tmp_path: Path) -> None:
    content = next((folder / "pool").iterdir()).read_bytes()
    arriving, out = tmp_path / "in", tmp_path / "w.csv"
    arriving.mkdir()
    with watching(folder / "run", arriving, "--out", out):
        with open(arriving / "slow.png", "wb", buffering=0) as file:
            for part in (content[:50], content[50:400], content[400:]):
                file.write(part)
                time.sleep(0.4)
        (arriving / "broken.png").write_bytes(content[:300])
        found = wait_for(out, 2)
    by_name = {Path(row["image_path"]).name: row for row in found}
    assert by_name["slow.png"]["pred_score"] and not by_name["slow.png"]["error"]
    assert "cannot read" in by_name["broken.png"]["error"]
    assert by_name["broken.png"]["pred_score"] == ""


def test_a_command_is_called_for_each_anomaly_and_no_shell_reads_names(
    folder: Path, tmp_path: Path
) -> None:
    arriving, out = tmp_path / "in", tmp_path / "w.csv"
    arriving.mkdir()
    names = ["$(touch owned).png", "a b.png"]
    for name in names:
        shutil.copy(folder / "pool" / "05.png", arriving / name)  # the highest score there
    note = tmp_path / "note.py"
    note.write_text(
        f"import sys; open({str(tmp_path / 'notes')!r}, 'a').write(sys.argv[1] + '\\n')"
    )
    with watching(
        folder / "run",
        arriving,
        "--out",
        out,
        "--false-alarms",
        "0.99",
        "--on-anomaly",
        f"{sys.executable} {note}",
    ) as process:
        flagged = [row for row in wait_for(out, 2) if row["pred_label"] == "1"]
        end = time.monotonic() + 20
        while time.monotonic() < end and len(flagged) > len(notes_in(tmp_path)):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(100) == 0
    assert sorted(notes_in(tmp_path)) == sorted(row["image_path"] for row in flagged)
    assert len(flagged) >= 1 and not Path("owned").exists()


def notes_in(folder: Path) -> list[str]:
    notes = folder / "notes"
    return notes.read_text().splitlines() if notes.exists() else []


@pytest.mark.parametrize("name", ["a.png", 'q"u,o\nte.png', "latin\udcff.png"])
def test_a_torn_line_is_dropped_and_no_other(tmp_path: Path, name: str) -> None:
    path = tmp_path / "w.csv"
    log = Log(path)
    log.add([line("first.png"), line(name)])
    log.close()
    content = path.read_bytes()
    start = len((",".join(COLUMNS) + "\n").encode())
    first = len(line("first.png").format_line().encode())
    for cut in range(start + first, len(content)):
        path.write_bytes(content[:cut])
        rows, end = parse_whole_rows(path.read_bytes(), start)
        assert rows == [line("first.png")] and end == start + first
    path.write_bytes(content[:-3])
    again = Log(path)
    assert again.rows == [line("first.png")]
    again.add([line(name)])
    again.close()
    assert path.read_bytes() == content


def test_what_is_not_ours_is_left_alone(folder: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.csv"
    theirs.write_text("a,b\n1,2\n")
    arriving = tmp_path / "in"
    arriving.mkdir()
    assert_one_sentence(
        run("watch", folder / "run", arriving, "--out", theirs), "wasn't written by this version"
    )
    assert theirs.read_text() == "a,b\n1,2\n"
    assert_one_sentence(run("watch", folder / "run", tmp_path / "no"), "no such folder")
    assert_one_sentence(
        run("watch", folder / "run", arriving, "--on-anomaly", "no-such-command"), "no such command"
    )


def test_two_watchers_dont_share_a_file(folder: Path, tmp_path: Path) -> None:
    arriving, out = tmp_path / "in", tmp_path / "w.csv"
    arriving.mkdir()
    with watching(folder / "run", arriving, "--out", out):
        assert_one_sentence(
            run("watch", folder / "run", arriving, "--out", out), "another process writes"
        )
