"""A run's folder and its request: state, lock, and a resume that changes nothing asked for."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import run as run_command
from small_run import TINY, assert_one_sentence, fit, make_folders
from test_run import LONGER, start_and_kill

from stssad import Patch
from stssad.registry import DEFAULTS, METHODS
from stssad.runs.fit import begun, fit_run, read_inputs
from stssad.runs.folder import RunFolder
from stssad.runs.request import FitRequest, check_same, request_in
from stssad.runs.run import Run
from stssad.settings import PretrainedSettings, Settings
from stssad.studio import jobs
from stssad.tuning.progress import Event, RestartEvent

HOLDER = """
import sys, time
from pathlib import Path
from stssad.runs.fit import begun, fit_run, read_inputs
from stssad.runs.folder import RunFolder
with RunFolder(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def held(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """The run's lock, in another process whose command line doesn't name us."""
    words = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def wait_for(run: RunFolder, state: str, seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while run.state != state:
        assert time.monotonic() < end, (run.state, jobs.progress_of(run))
        time.sleep(0.05)


def test_a_resume_in_the_studio_does_what_the_command_line_asked_for(tmp_path: Path) -> None:
    folder = make_folders(tmp_path)
    run = RunFolder(folder / "run")
    start_and_kill(folder, 1, 0.0, signal.SIGKILL, "--seed", 7)
    before = run.metadata
    assert (before["request"]["method"], before["request"]["seed"]) == ("paper", 7)
    jobs.start(run)
    wait_for(run, "running")
    assert run.stop()
    wait_for(run, "stopped")
    assert run.metadata == before
    done = fit(folder, *LONGER, "--seed", 7, "--resume")
    assert done.returncode == 0, done.stderr
    assert run.state == "finished"
    model = json.loads(run.model.read_text())
    assert (model["method"], model["seed"]) == ("paper", 7)


def test_a_resume_in_the_studio_ends_with_a_page(tmp_path: Path) -> None:
    folder = make_folders(tmp_path)
    run = RunFolder(folder / "run")
    start_and_kill(folder, 1, 0.0, signal.SIGKILL)
    jobs.start(run)
    wait_for(run, "finished")
    while run.is_locked:  # its process has yet to end
        time.sleep(0.05)
    run.report.unlink()
    assert run.state == "scored"
    jobs.start(run)
    wait_for(run, "finished")
    assert run.metadata["request"]["method"] == "paper"


def test_whether_a_fit_runs_is_known_without_proc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path / "run")
    run.write_metadata({"request": {}})
    real = Path.read_bytes

    def elsewhere(path: Path) -> bytes:
        if path.parts[:2] == ("/", "proc"):
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", elsewhere)
    with held(run.path) as process:
        assert run.state == "running" and run.holder == process.pid
        with pytest.raises(ValueError, match=f"process {process.pid} is working on the run"):
            with run.locked():
                pass
        assert run.stop()
        process.wait(20)
        assert process.returncode == -signal.SIGTERM
    assert run.state == "stopped" and not run.stop()


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.write_metadata({})
    with held(run.path) as process:
        process.kill()
        process.wait()
        assert run.lock.is_file() and run.state == "stopped"
        run.holder_file.write_text(str(os.getpid()))  # a number that is in use again
        assert run.holder is None and not run.stop()
        with run.locked():
            assert run.holder == os.getpid()


def test_states_of_a_folder(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    assert run.state == "absent"
    run.write_metadata({})
    assert run.state == "stopped"
    run.model.touch()
    assert run.state == "scored"
    run.report.touch()
    assert run.state == "finished"
    with run.locked():  # for another threshold
        assert run.state == "finished"
    run.metadata_file.write_text("[")
    assert run.state == "damaged"


@pytest.mark.parametrize(
    "request_",
    [
        FitRequest.of(Path("good"), Path("pool")),
        FitRequest.of(None, None, "paper", settings=Settings.quick(width=8), seed=7, jobs=3),
        FitRequest.of(
            Path("a\udcff"),
            Path("b"),
            augmentation=("Patch", "Blur"),
            encoder="EfficientNetLite1",
            settings=PretrainedSettings(holdout_share=0.2),
            false_alarms=0.05,
            engine="onnx",
            strict=True,
        ),
    ],
)
def test_a_request_is_read_as_it_was_written(tmp_path: Path, request_: FitRequest) -> None:
    run = RunFolder(tmp_path / "run")
    run.write_metadata({"request": request_.content()})
    found = request_in(run)
    assert found.content() == request_.content()
    assert found.settings == request_.settings and found.augmentation == request_.augmentation
    check_same(run.metadata["request"], found, run.path)


def test_a_request_names_what_differs_and_what_has_no_name() -> None:
    request = FitRequest.of(Path("good"), Path("pool"))
    for name, other in (("seed", 3), ("engine", "torch"), ("false_alarms", 0.1)):
        changed = FitRequest.of(Path("good"), Path("pool"), **{name: other})
        with pytest.raises(ValueError, match=f"was begun with {name} "):
            check_same(request.content(), changed, Path("run"))
    check_same(request.content(), FitRequest.of(Path("good"), Path("pool"), jobs=5), Path("run"))
    with pytest.raises(ValueError, match="the encoder 'MyNet' is none of stssad's"):
        FitRequest.of_content({**request.content(), "encoder": "MyNet"})


@pytest.mark.parametrize("method", list(METHODS))
def test_defaults_by_name_are_those_that_a_fit_takes(method: str) -> None:
    choices = METHODS[method].choices(None, None, None, None)
    assert type(choices.encoder).__name__ == DEFAULTS[method].encoder
    names = tuple(type(each).__name__ for each in choices.augmentations)
    assert names == DEFAULTS[method].augmentations


def test_weights_are_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stssad.encoders.efficientnet_lite import EfficientNetLite0

    built, plain = [], EfficientNetLite0.__init__

    def counted(encoder: EfficientNetLite0) -> None:
        built.append(1)
        plain(encoder)

    monkeypatch.setattr(EfficientNetLite0, "__init__", counted)
    request = FitRequest.of(tmp_path, tmp_path)
    assert not built
    from stssad.methods.defaults import resolve

    estimator = request.estimator()
    resolve(
        estimator.method, estimator.augmentation, estimator.encoder, estimator.settings
    )  # as its `fit` does
    assert len(built) == 1


def test_a_fit_of_too_few_images_leaves_no_folder(tmp_path: Path) -> None:
    folder = make_folders(tmp_path)
    for path in sorted((folder / "good").iterdir())[3:]:
        path.unlink()
    assert_one_sentence(fit(folder, *TINY), "train holds 3 image(s), but at least 4 are needed")
    assert not (folder / "run").exists()


QUICK = "--augmentation patch --image-size 64 --max-iterations 2 --val-augmented-samples 4".split()


def begin(folder: Path, out: str, *words: object) -> "subprocess.CompletedProcess[str]":
    sources = ("--normal", folder / "good", "--unlabeled", folder / "pool")
    return run_command("fit", *sources, "--out", folder / out, "--jobs", 1, *QUICK, *words)


def test_a_fit_that_dies_while_it_explains_has_its_scores(tmp_path: Path) -> None:
    """Scores first; a resume explains, and leaves threshold and scores as they are."""
    folder = make_folders(tmp_path)
    request = FitRequest.of(
        folder / "good",
        folder / "pool",
        augmentation=("Patch",),
        settings=PretrainedSettings(image_size=64, max_iterations=2, val_augmented_samples=4),
        jobs=1,
    )
    run = RunFolder(folder / "run")
    request, inputs = read_inputs(request, lambda error: None)

    def die(event: Event) -> None:
        if isinstance(event, RestartEvent):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), begun(run, request, "by a test"):
        fit_run(run, request, inputs, die)
    assert run.state == "scored" and run.report.is_file()
    before, model = run.scores.read_bytes(), Run.open(run.path).model()
    assert model.candidates_ == [] and "restart" not in run.report.read_text()
    assert begin(folder, "run", "--resume").returncode == 0
    assert run.state == "finished" and run.scores.read_bytes() == before
    assert begin(folder, "whole").returncode == 0
    again, whole = (Run.open(folder / name).model() for name in ("run", "whole"))
    assert again.learned_ == whole.learned_ and again.evidence_ == whole.evidence_
    assert again.decision_scores_.tolist() == whole.decision_scores_.tolist()
    assert (folder / "whole" / "scores.csv").read_bytes() == before


def test_an_explanation_may_be_left_out_and_asked_for_later(tmp_path: Path) -> None:
    folder = make_folders(tmp_path)
    run = RunFolder(folder / "run")
    assert begin(folder, "run", "--no-explain").returncode == 0
    assert run.state == "finished" and not Run.open(run.path).summary().candidates
    assert begin(folder, "run", "--no-explain", "--resume").returncode == 0
    assert not Run.open(run.path).summary().candidates
    assert begin(folder, "run", "--resume").returncode == 0
    assert len(Run.open(run.path).summary().candidates) == len(Patch().initial_values())
