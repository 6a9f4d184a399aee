"""Short forms of `make fuzz` and `make crash`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["fuzzing.py --cases 320 --seed 7", "crashing.py --moments 1 --seed 7"]
)
def test_short_form(words: str) -> None:
    script, *rest = words.split()
    done = subprocess.run(
        [sys.executable, HERE / script, *rest], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_a_full_disk_is_one_sentence_and_costs_nothing(tmp_path: Path) -> None:
    """A small file system of its own; only where one may be mounted."""
    from crashing import COMMAND, fit_words
    from small_run import make_folders

    folder = make_folders(tmp_path / "data")
    small = folder / "run"
    small.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", small], capture_output=True
    )
    if mount.returncode != 0:
        pytest.skip("no file system may be mounted here")
    try:
        words = [COMMAND, *map(str, fit_words(1)(folder))]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr and "No space left" in done.stderr
        subprocess.run(["mount", "-o", "remount,size=80m", small], check=True)
        done = subprocess.run([*words, "--resume"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.slow
def test_a_clock_that_is_turned_back_changes_nothing(tmp_path: Path) -> None:
    """Killed, and resumed a day earlier by the clock: it ends as a run that nobody broke."""
    from crashing import COMMAND, fit_words, kill_after, resumed, run_content
    from small_run import make_folders

    whole, broken = (make_folders(tmp_path / name) for name in ("whole", "broken"))
    subprocess.run([COMMAND, *map(str, fit_words(1)(whole))], check=True, capture_output=True)
    kill_after(fit_words(1)(broken), 6)
    (tmp_path / "sitecustomize.py").write_text(
        "import time\nbefore = time.time\ntime.time = lambda: before() - 86400\n"
    )
    done = subprocess.run(
        [COMMAND, *map(str, resumed(1)(broken))],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert run_content(broken) == run_content(whole)
