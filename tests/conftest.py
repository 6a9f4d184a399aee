"""Small networks run fastest on one thread, and the same on every machine."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Commands that tests start, too: threads of several processes that wait for one another on the
# same cores make a fit ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture()
def float64() -> Iterator[None]:
    """Everything in double precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `good` and `pool`, and a finished `run` of the paper's method: not to be changed."""
    from small_run import fit, make_folders

    folder = make_folders(tmp_path_factory.mktemp("tiny"))
    done = fit(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real one, as a user has it."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        if os.environ.get("STSSAD_REQUIRE_BROWSER"):
            pytest.fail("a browser is required here, but chromium isn't installed")
        pytest.skip("chromium isn't installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        chromium = playwright.chromium.launch(executable_path=executable, args=flags)
        yield chromium
        chromium.close()
