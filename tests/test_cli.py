"""The command line, run as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STSSAD = Path(sys.executable).with_name("stssad")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run([STSSAD, *words], capture_output=True, text=True, env=environment)


def test_help_names_the_commands_without_importing_torch() -> None:
    done = run("--help")
    assert done.returncode == 0 and "demo" in done.stdout
    code = "import sys, stssad.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_version_is_printed() -> None:
    from stssad import __version__

    assert run("--version").stdout == f"stssad {__version__}\n"


def test_a_wrong_word_is_one_sentence_and_exit_code_2() -> None:
    done = run("demo", "--texture", "velvet")
    assert done.returncode == 2
    assert done.stderr == "stssad: unknown texture 'velvet'; use one of brick, grass, gravel\n"


@pytest.mark.slow
def test_the_papers_demo_finds_the_planted_patch(tmp_path: Path) -> None:
    done = run("demo", "--paper", "--out", str(tmp_path / "demo"))
    assert done.returncode == 0, done.stderr
    lines = {key: value for key, _, value in (x.partition(": ") for x in done.stdout.splitlines())}
    planted, learned = (
        float(lines[name].split("area ")[1].split(" %")[0])
        for name in ("planted patch", "learned patch")
    )
    assert 1 / 2.5 < learned / planted < 2.5
    assert float(lines["AUROC on the pool"]) >= 0.99
    assert (tmp_path / "demo" / "paper" / "report.html").is_file()
    assert done.stdout.count("restart 1 ") + done.stdout.count("restart 2 ") >= 2  # progress
