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


@pytest.fixture(scope="module")
def fit_help() -> str:
    return run("fit", "--help").stdout


def test_each_setting_stands_under_the_method_that_accepts_it(fit_help: str) -> None:
    titles = {"pretrained": "The pretrained method", "paper": "The paper's method"}
    panels = {
        title.strip("─╭╮ "): body
        for title, _, body in (panel.partition("\n") for panel in fit_help.split("╭")[1:])
    }
    of_method = {
        method: next(body for title, body in panels.items() if title.startswith(words))
        for method, words in titles.items()
    }
    for name, known in (("--tuning-size", "pretrained"), ("--width", "paper")):
        assert [m for m, body in of_method.items() if name in body] == [known]
        assert name not in panels["Tuning, both methods"]


def test_the_help_of_image_size_is_the_pretrained_methods(fit_help: str) -> None:
    """It is the default method, and its text says what the other does."""
    words = " ".join(fit_help.replace("│", " ").split())
    assert "--image-size <int> Image size in pixels;" in words
    assert "If not given: 256, or less where the files are smaller" in words


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
