"""The benchmark: cells, their store, what a method sees, and the command line."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from typer.testing import CliRunner

from stssad.cli import app
from stssad.experiments.bench import runner
from stssad.experiments.bench.cell import Cell, Line, Store
from stssad.experiments.bench.methods import Method, Surroundings
from stssad.experiments.bench.runner import Unit, in_turn, make_units, run_here, run_unit
from stssad.experiments.testbeds.task import Task
from stssad.experiments.testbeds.testbed import Testbed

SMALL = {"width": 8, "warm_start_epochs": 1, "max_iterations": 2, "smoothing": 1}


def cell(method: str = "RS-CD", task: str = "0.04/1", seed: int = 0) -> Cell:
    return Cell("demonstrative", task, method, seed, changes=SMALL)


def line(made: Cell, auc: float = 0.5) -> Line:
    return Line(made, auc, 1.0, {"area": 0.1}, "0", 10, 5, 5)


def test_a_line_survives_the_file(tmp_path: Path) -> None:
    store, made = Store(tmp_path), [line(cell(seed=k), k / 10) for k in range(3)]
    store.append(made)
    assert store.lines("demonstrative") == made
    facts = json.loads((tmp_path / "demonstrative.jsonl").read_text().splitlines()[0])
    wanted = "testbed task method seed protocol preset auc seconds learned version".split()
    assert set(wanted) <= set(facts)


def test_a_torn_last_line_is_left_out_and_then_cut_off(tmp_path: Path) -> None:
    """Wherever it is torn, its newline included."""
    store = Store(tmp_path)
    own = replace(line(cell(seed=1)), learned={"Größe": 0.5})
    store.append([line(cell(seed=0)), own])
    path = store.path("demonstrative")
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        assert [made.cell.seed for made in store.lines("demonstrative")] == [0]
        store.append([own])
        assert path.read_bytes() == whole


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    def write(seeds: range) -> None:
        for seed in seeds:
            Store(tmp_path).append([line(cell(seed=seed))])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [range(k, 100, 4) for k in range(4)]))
    assert {made.cell.seed for made in Store(tmp_path).lines("demonstrative")} == set(range(100))


def test_a_cell_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "class Broken:\n"
        "    def __init__(self, settings, seed): pass\n"
        "    def fit(self, train, unlabeled): raise RuntimeError('no luck')\n"
    )
    with pytest.raises(ValueError, match=r"1 cell\(s\) failed.*0\.16/1 Broken seed 0.*no luck"):
        bench(
            "run",
            "demonstrative",
            "--tasks",
            "0.16/1",
            "--methods",
            f"{file}:Broken,RS-CD",
            *CHANGES,
            "--jobs",
            "1",
            "--results",
            str(tmp_path),
        )
    assert [made.cell.method for made in Store(tmp_path).lines("demonstrative")] == ["RS-CD"]


def test_results_of_other_code_are_not_taken_for_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    code = (
        "class Mine:\n"
        "    def __init__(self, settings, seed): pass\n"
        "    def fit(self, train, unlabeled): return self\n"
        "    def decision_function(self, images): return images.flatten(1).mean(1).numpy()\n"
    )
    file.write_text(code)
    words = ["run", "demonstrative", "--tasks", "0.16/1", "--methods", f"{file}:Mine"]
    words += ["--jobs", "1", "--results", str(tmp_path)]
    bench(*words)
    assert "0 to run" in bench(*words)
    file.write_text(code.replace("mean(1)", "amax(1)"))
    with pytest.raises(ValueError, match="other images, settings or code than yours"):
        bench(*words)
    with pytest.raises(ValueError, match="two methods are called 'AE'"):
        file.write_text(code.replace("Mine", "AE"))
        bench("run", "demonstrative", "--methods", f"{file}:AE", "--results", str(tmp_path))


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append([line(cell(seed=k)) for k in range(3)])
    path = store.path("demonstrative")
    first, _, third = path.read_text().splitlines()
    path.write_text(f"{first}\n{{broken\n{third}\n")
    with pytest.raises(ValueError, match="line 2 of"):
        store.lines("demonstrative")


def test_cells_that_ignore_the_pool_are_fitted_together() -> None:
    cells = [cell(m, t, s) for s in (0, 1) for m in ("RS-CD", "MMD1") for t in ("0.04/1", "0.08/1")]
    made = make_units(cells, None, None)
    assert sorted(len(unit.cells) for unit in made) == [1, 1, 1, 1, 2, 2]
    assert {c.key for unit in made for c in unit.cells} == {c.key for c in cells}
    assert {unit.cells[0].seed for unit in made[:2]} == {0, 1}  # in turn from each seed
    assert in_turn([[1, 2, 3], [4]]) == [1, 4, 2, 3]


def test_one_fit_serves_all_tasks_of_the_same_images() -> None:
    together = run_unit(make_units([cell(task="0.04/1"), cell(task="0.16/1")], None, None)[0]).lines
    alone = run_unit(Unit((cell(task="0.16/1"),), None, None)).lines
    assert together[1].auc == alone[0].auc


def test_the_same_cell_gives_the_same_auc_in_any_number_of_processes() -> None:
    todo = make_units([cell("ST-SSAD"), cell("RS-CD")], None, None)
    one, two = (
        {made.cell.key: made.auc for outcome in run_here(todo, jobs) for made in outcome.lines}
        for jobs in (1, 2)
    )
    assert one == two and len(one) == 2


def test_a_shared_warm_start_changes_nothing(tmp_path: Path) -> None:
    plain = run_unit(Unit((cell("ST-SSAD"),), None, None)).lines
    folder = tmp_path / "warm"
    first = run_unit(Unit((cell("ST-SSAD"),), None, folder)).lines
    n_kept = len(list(folder.iterdir()))
    other_loss = run_unit(Unit((cell("MMD1"),), None, folder)).lines
    again = run_unit(Unit((cell("ST-SSAD"),), None, folder)).lines
    assert len(list(folder.iterdir())) == n_kept == 4  # one for each start, used by both
    assert plain[0].auc == first[0].auc == again[0].auc
    assert plain[0].starts == first[0].starts == again[0].starts
    assert other_loss[0].starts != plain[0].starts
    assert run_unit(Unit((cell("MMD1"),), None, None)).lines[0].starts == other_loss[0].starts


class Spy:
    """A method that keeps what it is given."""

    seen: list[object] = []  # noqa: RUF012
    place = ""  # what it was built from

    def fit(self, *given: object, **more: object) -> "Spy":
        Spy.seen += [*given, *more.values()]
        return self

    def decision_function(self, images: Tensor) -> np.ndarray:
        Spy.seen.append(images)
        return images.flatten(1).double().mean(1).numpy()


def run_spy(monkeypatch: pytest.MonkeyPatch, flip: bool) -> tuple[list[object], float]:
    """The cell as the runner runs it, with labels as they are or turned over."""
    Spy.seen = []

    def build(place: Surroundings) -> Spy:
        Spy.place = str(asdict(place))
        return Spy()

    monkeypatch.setattr(runner, "find_method", lambda name: Method(build, uses_pool=True))
    if flip:
        plain_load = Testbed.load

        def flipped(self: object, *given: object) -> Task:
            task = plain_load(self, *given)  # type: ignore[arg-type]
            return replace(task, test_labels=1 - task.test_labels, name="defect")

        monkeypatch.setattr(Testbed, "load", flipped)
    made = run_unit(Unit((cell(),), None, None)).lines
    return Spy.seen, made[0].auc


def test_labels_never_reach_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, auc = run_spy(monkeypatch, flip=False)
    assert len(seen) == 3  # training images, pool; then the test images
    assert all(isinstance(item, Tensor) and item.ndim == 4 for item in seen)  # nothing but images
    assert "0.04" not in Spy.place and "label" not in Spy.place  # nor the task's name
    flipped, flipped_auc = run_spy(monkeypatch, flip=True)
    for a, b in zip(seen, flipped, strict=True):
        assert isinstance(a, Tensor) and isinstance(b, Tensor) and torch.equal(a, b)
    assert flipped_auc == pytest.approx(1 - auc)  # labels are read where the AUC is computed


CHANGES = [word for name, value in SMALL.items() for word in ("--change", f"{name}={value}")]


def bench(*words: str) -> str:
    result = CliRunner().invoke(app, ["bench", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    words = ["run", "demonstrative", "--tasks", "0.04/1", "--jobs", "1", *CHANGES]
    words += ["--results", str(tmp_path)]
    bench(*words, "--methods", "RS-CD")
    before = (tmp_path / "demonstrative.jsonl").read_text()
    said = bench(*words, "--methods", "RS-CD,RS-CO")
    assert "2 cells, 1 of them done: 1 to run" in said
    after = (tmp_path / "demonstrative.jsonl").read_text()
    assert after.startswith(before) and after.count("\n") == 2
    assert "0 to run" in bench(*words, "--methods", "RS-CD,RS-CO")


def test_a_method_of_ones_own_is_one_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "class Darkest:\n"
        "    def __init__(self, settings, seed): pass\n"
        "    def fit(self, train, unlabeled): return self\n"
        "    def decision_function(self, images): return -images.flatten(1).mean(1).numpy()\n"
    )
    name = f"{file}:Darkest"
    bench(
        "run",
        "demonstrative",
        "--tasks",
        "0.16/1",
        "--methods",
        name,
        "--jobs",
        "1",
        "--results",
        str(tmp_path),
    )
    (made,) = Store(tmp_path).lines("demonstrative")
    assert made.cell.method == "Darkest" and made.auc > 0.9


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STSSAD_DATA", raising=False)
    results = ["--results", str(tmp_path)]
    with pytest.raises(ValueError, match=r"no task '9/9'; it has 0\.01/0\.25"):
        bench("run", "demonstrative", "--tasks", "9/9", *results)
    with pytest.raises(ValueError, match="unknown method 'XY'"):
        bench("run", "demonstrative", "--methods", "XY", *results)
    with pytest.raises(ValueError, match="--change takes NAME=VALUE"):
        bench("run", "demonstrative", "--change", "speed=3", *results)
    with pytest.raises(FileNotFoundError, match="--data or STSSAD_DATA"):
        bench("run", "bottle", *results)
    with pytest.raises(ValueError, match="make some with: stssad bench run svhn"):
        bench("table", "2", *results)


def test_an_augmentation_of_ones_own_is_one_file(tmp_path: Path) -> None:
    example = Path(__file__).parent.parent / "examples" / "your_augmentation.py"
    bench(
        "run",
        "demonstrative",
        "--tasks",
        "0.16/1",
        "--augmentation",
        f"{example}:BrightLine",
        "--jobs",
        "1",
        *CHANGES,
        "--results",
        str(tmp_path),
    )
    (made,) = Store(tmp_path).lines("demonstrative")
    assert made.cell.method == "ST-SSAD[BrightLine]" and "thickness" in made.learned


def test_demonstrative_tasks_take_textures_whatever_data_is_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bolts"
    folder.mkdir()
    for i in range(30):
        Image.new("RGB", (40, 40), (100 + i, 90, 80)).save(folder / f"{i}.png")
    monkeypatch.setenv("STSSAD_DATA", str(folder))
    words = ["run", "demonstrative", "--tasks", "0.16/1", "--methods", "RS-CD", "--jobs", "1"]
    words += [*CHANGES, "--results", str(tmp_path)]
    bench(*words)
    bench(*words, "--normal", str(folder))
    (texture,), (own,) = (
        Store(tmp_path).lines(name)
        for name in ("demonstrative", f"demonstrative-{tmp_path.name}-bolts")
    )
    assert (texture.n_train, own.n_train) == (240, 20)
    with pytest.raises(ValueError, match="--normal is for the demonstrative tasks"):
        bench("run", "tile", "--normal", str(folder), "--results", str(tmp_path))
