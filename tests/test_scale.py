"""Scoring in parts and fitting many lines on a Ray cluster: each image once, whatever is lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import run
from namespace import alone, needs_namespace
from small_run import TINY, assert_one_sentence, fit, make_folders

from stssad.runs.predictions import Prediction
from stssad.scale.addresses import fetch_all, find_addresses
from stssad.scale.fit_many import read_lines
from stssad.scale.parts import OutputParts, Row, divide

pyarrow = pytest.importorskip("pyarrow", reason="in the extra `ray`")
SCRIPT = Path(__file__).with_name("ray_scoring.py")
REQUEST = {"model": "m", "images": "i"}
ROWS = [Row("a.png", 1.5, 1, 0.25), Row('b,"x\udcff.png', None, None, None, "cannot read it")]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_parts_are_read_as_they_were_written(tmp_path: Path, form: str) -> None:
    parts = OutputParts(tmp_path / "out", form)
    parts.begin(REQUEST)
    parts.write(0, ROWS[:1])
    parts.write(1, ROWS)
    totals = parts.finish(2)
    assert (totals.n, totals.flagged, totals.unreadable) == (3, 2, ["cannot read it"])
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["complete"] and manifest["parts"] == [f"part-00000{k}.{form}" for k in (0, 1)]
    found = parts.read(1)
    assert float(found[0]["pred_score"]) == 1.5 and found[0]["image_path"] == "a.png"
    wanted = 'b,"x\\xff.png' if form == "parquet" else 'b,"x\udcff.png'
    assert found[1]["image_path"] == wanted


def test_a_folder_is_used_only_for_the_same_request(tmp_path: Path) -> None:
    parts = OutputParts(tmp_path / "out", "csv")
    parts.begin(REQUEST)
    parts.begin(REQUEST)
    with pytest.raises(ValueError, match="of other images, of another model"):
        parts.begin({**REQUEST, "images": "other"})
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "keep.txt").write_text("mine")
    with pytest.raises(ValueError, match="isn't empty and isn't ours"):
        OutputParts(theirs, "csv").begin(REQUEST)


def test_inputs_are_folders_lists_parquet_files_and_addresses(tmp_path: Path) -> None:
    import fsspec
    import pyarrow.parquet

    folder = make_folders(tmp_path) / "pool"
    paths = [str(path) for path in sorted(folder.iterdir())]
    (tmp_path / "list.txt").write_text("\n".join(paths))
    table = pyarrow.table({"n": list(range(len(paths))), "path": paths})
    pyarrow.parquet.write_table(table, tmp_path / "paths.parquet")
    assert find_addresses(str(folder)) == paths
    assert find_addresses(str(tmp_path / "list.txt")) == paths
    assert find_addresses(str(tmp_path / "paths.parquet")) == paths
    memory = fsspec.filesystem("memory")
    for path in paths:
        memory.pipe(f"/archive/{Path(path).name}", Path(path).read_bytes())
    found = find_addresses("memory://archive")
    assert [Path(each).name for each in found] == [Path(path).name for path in paths]
    with fetch_all(found) as files:
        assert [file.read_bytes() for file in files] == [Path(path).read_bytes() for path in paths]
    assert list(divide(paths, 7)) == [paths[:7], paths[7:14], paths[14:]]
    pyarrow.parquet.write_table(pyarrow.table({"a": [1], "b": [2]}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="has no column image_path or path"):
        find_addresses(str(tmp_path / "other.parquet"))
    with pytest.raises(FileNotFoundError, match="nothing at"):
        find_addresses("memory://nowhere")


@pytest.mark.parametrize(
    "text,words",
    [
        ("x = [", "is no TOML file"),
        ("", "names no line"),
        ("bolt = 3", "must be a table"),
        ('[bolt]\nnormal = "a"', 'needs unlabeled = "a folder"'),
        ('[bolt]\nnormal = "a"\nunlabeled = "b"\nout = "c"\nseed = [1]', "a word or a number"),
        (
            '[a]\nnormal="a"\nunlabeled="b"\nout="c"\n[b]\nnormal="a"\nunlabeled="b"\nout="c"',
            "the same out",
        ),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "lines.toml").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_lines(tmp_path / "lines.toml")


def test_flags_that_do_not_go_together_are_named(fitted: Path, tmp_path: Path) -> None:
    words = ["score", fitted / "run", fitted / "pool"]
    assert_one_sentence(run(*words, "--ray", "local"), "--ray needs --out")
    assert_one_sentence(run(*words, "--format", "parquet"), "goes with --ray")
    assert_one_sentence(
        run(*words, "--ray", "local", "--out", tmp_path / "o", "--drift"), "don't go with --ray"
    )


def on_cluster(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        alone([sys.executable, *map(str, words)]),
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "RAY_worker_niceness": "0"},  # else other work starves Ray's
    )


@pytest.mark.slow
@needs_namespace
def test_a_lost_node_costs_nothing_and_a_second_start_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    folder, many = make_folders(tmp_path), tmp_path / "many"
    assert fit(folder).returncode == 0
    many.mkdir()
    for k in range(10):
        for path in (folder / "pool").iterdir():
            shutil.copy(path, many / f"{k}-{path.name}")
    (many / "broken.png").write_bytes(b"no image")
    out = tmp_path / "out"
    done = on_cluster(SCRIPT, "kill", folder / "run", many, out, 2, 10)
    assert done.returncode == 0, done.stderr[-2000:]
    (said,) = (x for x in done.stdout.splitlines() if x.startswith('{"found"'))
    found = json.loads(said)["found"]
    assert found["killed"] and found["n"] == 161 and len(found["unreadable"]) == 1
    assert "broken.png" in found["unreadable"][0]
    parts = OutputParts(out, "parquet")
    rows = [row for k in range(17) for row in parts.read(k)]
    assert sorted(row["image_path"] for row in rows) == sorted(str(p) for p in many.iterdir())
    alone_scores = run("score", folder / "run", many, "--out", tmp_path / "s.csv")
    assert alone_scores.returncode == 0
    lines = (tmp_path / "s.csv").read_text().splitlines()[1:]
    by_name = {line.split(",")[0]: float(line.split(",")[1]) for line in lines}
    for row in rows:
        if not row["error"]:
            assert row["pred_score"] == pytest.approx(by_name[row["image_path"]], abs=1e-4)
    before = parts.path(3).stat().st_mtime_ns
    parts.path(4).unlink()  # as if it had been stopped before that one
    code = "from stssad.cli import main; main()"
    again = on_cluster(
        "-c", code, "score", folder / "run", many, "--ray", "local", "--out", out, "--part-size", 10
    )
    assert again.returncode == 0, again.stderr[-2000:]
    assert "151 images scored" in again.stdout and "160 images scored" in again.stdout
    assert parts.path(4).is_file() and parts.path(3).stat().st_mtime_ns == before


@pytest.mark.slow
@needs_namespace
def test_many_lines_are_fitted_side_by_side(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    make_folders(tmp_path)
    flags = dict(zip(TINY[::2], TINY[1::2], strict=True))
    settings = "".join(
        f"{name[2:].replace('-', '_')} = {value if value.isdigit() else json.dumps(value)}\n"
        for name, value in flags.items()
    )
    tables = [
        f'[{name}]\nnormal = "good"\nunlabeled = "{pool}"\nout = "runs/{name}"\n{settings}'
        for name, pool in (("bolt", "pool"), ("nut", "pool"), ("none", "nowhere"))
    ]
    (tmp_path / "lines.toml").write_text("".join(tables))
    code = "from stssad.cli import main; main()"
    done = on_cluster("-c", code, "fit-many", tmp_path / "lines.toml")
    assert done.returncode == 2, done.stderr[-2000:]
    assert "1 of 3 lines could not be fitted" in done.stderr and "no such folder" in done.stderr
    for name in ("bolt", "nut"):
        assert (tmp_path / "runs" / name / "report.html").is_file()
    again = on_cluster("-c", code, "fit-many", tmp_path / "lines.toml")
    assert "bolt: was finished before" in again.stdout


def test_a_row_is_a_prediction_of_an_image_by_itself() -> None:
    """q-values are of a batch, and a part is none."""
    row = Row.of(Prediction("a.png", 1.5, 1, 0.01, q_value=0.2))
    assert row == Row("a.png", 1.5, 1, 0.01)
