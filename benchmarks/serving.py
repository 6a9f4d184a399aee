"""Scoring, watching and marking, measured: what `suite.py` prints of a run in use."""

import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch
from measure import ratio_of, seconds
from PIL import Image
from stssad.encoders.compiled import CompiledEncoder

from stssad import STSSAD, Patch, PretrainedSettings
from stssad.encoders.encoding import each_chunk
from stssad.experiments.testbeds.synthetic import texture_crops
from stssad.images.decode import read_image
from stssad.images.source import find_images
from stssad.methods.engine import OnnxEngine
from stssad.runs.predictions import score_files, skip_unreadable, write_predictions

COMMAND = str(Path(sys.executable).with_name("stssad"))
N_FILES, SIZE = 240, 256
FEW = PretrainedSettings(max_iterations=1, smoothing=1)
SETTING = f"{N_FILES} PNG files of {SIZE} px, default model, 2 threads"


def save(folder: Path, n: int, seed: int, size: int = SIZE) -> None:
    folder.mkdir(parents=True)
    crops = texture_crops("gravel", n, size, torch.Generator().manual_seed(seed))
    for i, crop in enumerate(crops):
        pixels = (crop.permute(1, 2, 0) * 255).to(torch.uint8).numpy()
        Image.fromarray(pixels).save(folder / f"{i:04d}.png")


@cache
def built() -> tempfile.TemporaryDirectory[str]:
    """Images and a run of the default method, for all measurements of one process."""
    made = tempfile.TemporaryDirectory()
    folder = Path(made.name)
    save(folder / "good", 100, 0)
    save(folder / "pool", 40, 1)
    save(folder / "new", N_FILES, 2)
    fit_shortly(folder)
    return made


def fit_shortly(folder: Path) -> None:
    """A run of the default method that tunes next to nothing."""
    words = [
        "fit",
        "--normal",
        folder / "good",
        "--unlabeled",
        folder / "pool",
        "--out",
        folder / "runs/run",
        "--max-iterations",
        1,
        "--augmentation",
        "patch",
        "--quiet",
    ]
    subprocess.run([COMMAND, *map(str, words)], check=True)


@contextmanager
def a_run() -> Iterator[Path]:
    """A copy of it that may be changed."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(shutil.copytree(built().name, Path(name) / "copy"))


def from_files(model: STSSAD, folder: Path, engine: Any) -> None:
    with open(folder.parent / "scores.csv", "w") as file:
        scored = skip_unreadable(score_files(model, find_images(folder), engine), None)
        rows = (each.prediction for each in scored)
        write_predictions(rows, file, "csv")


def engine_speedup() -> dict[str, Any]:
    """From files to scores.csv: torch's time over ONNX Runtime's, the graph made before."""
    with a_run() as folder:
        model = STSSAD.load(folder / "runs/run")
        fast = OnnxEngine(model)
        pairs = [
            (
                seconds(lambda: from_files(model, folder / "new", model.model_)),
                seconds(lambda: from_files(model, folder / "new", fast)),
            )
            for _ in range(3)
        ]
    return {**asdict(ratio_of(pairs)), "setting": SETTING}


def score_overhead() -> dict[str, Any]:
    """From files to scores.csv in ONNX Runtime, over bare decoding plus bare engine."""
    with a_run() as folder:
        model = STSSAD.load(folder / "runs/run")
        fast, paths = OnnxEngine(model), find_images(folder / "new")
        pixels = torch.randint(0, 256, (N_FILES, 3, SIZE, SIZE), dtype=torch.uint8)

        def decoding() -> None:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda path: read_image(path, model.reading_), paths))

        def network() -> None:
            list(each_chunk(pixels, fast))

        alone = [(seconds(decoding), seconds(network)) for _ in range(3)]
        pairs = [(seconds(lambda: from_files(model, folder / "new", fast)), sum(a)) for a in alone]
    milliseconds = [1000 * statistics.median(x) / N_FILES for x in zip(*alone, strict=True)]
    facts = {"decoding_ms_an_image": milliseconds[0], "engine_ms_an_image": milliseconds[1]}
    return {**asdict(ratio_of(pairs)), "setting": SETTING, **facts}


def encoding_speedup() -> dict[str, Any]:
    """What a fit gains: embedding both sizes, torch's time over ONNX Runtime's."""
    model = STSSAD(augmentation=Patch(), settings=FEW)
    crops = texture_crops("gravel", 60, SIZE, torch.Generator().manual_seed(0))
    encoder = model.fit(crops[:30], crops[30:]).model_.encoder
    from stssad.encoders.encoding import features_of

    fast = CompiledEncoder(encoder, SIZE, 128)
    pairs = [
        (
            seconds(lambda: list(each_chunk(crops, lambda x: features_of(encoder, x, 128)))),
            seconds(lambda: list(each_chunk(crops, fast))),
        )
        for _ in range(3)
    ]
    return {**asdict(ratio_of(pairs)), "setting": "60 images of 256 px, 2 threads"}


def watch_seconds() -> dict[str, Any]:
    """From an image on the disk to its line in the CSV."""
    with a_run() as folder:
        arriving, out = folder / "arriving", folder / "watch.csv"
        arriving.mkdir()
        process = subprocess.Popen(
            [COMMAND, "watch", str(folder / "runs/run"), str(arriving), "--out", str(out)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            process.stdout.readline()
            time.sleep(1)
            took = sorted(arrival(path, arriving, out) for path in find_images(folder / "new")[:25])
        finally:
            process.kill()
            process.communicate()
    middle = statistics.median(took)
    return {"value": middle, "low": took[0], "high": took[-1], "setting": "seconds, 25 images"}


def arrival(path: Path, folder: Path, out: Path) -> float:
    shutil.copy(path, folder / path.name)
    began = time.perf_counter()
    while path.name not in out.read_text():
        time.sleep(0.005)
    took = time.perf_counter() - began
    time.sleep(0.1)
    return took


def labels_a_second(duration: float = 30) -> dict[str, Any]:
    """The studio on loopback, eight reviewers at once; acknowledged labels are counted after."""
    from stssad.review.labels import Labels

    with a_run() as folder, studio(folder) as (host, token):
        counts = [0] * 8
        stop = time.perf_counter() + duration

        def work(k: int) -> None:
            connection = http.client.HTTPConnection(host)
            connection.connect()  # as a browser does: no waiting for a packet to fill
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            headers = {
                "Cookie": f"stssad={token}",
                "x-stssad": "1",
                "content-type": "application/json",
            }
            while time.perf_counter() < stop:
                body = json.dumps({"i": k, "label": "good", "who": f"{k}-{counts[k]}"})
                connection.request("POST", "/run/run/labels", body, headers)
                answer = connection.getresponse()
                answer.read()
                counts[k] += answer.status == 200

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with Labels(folder / "runs/run")._connection() as connection:
            kept = connection.execute("SELECT count(*) FROM labels").fetchone()[0]
    rate = sum(counts) / duration
    return {
        "value": rate,
        "low": rate,
        "high": rate,
        "setting": f"{duration:g} s, 8 connections",
        "acknowledged": sum(counts),
        "kept": kept,
    }


@contextmanager
def studio(folder: Path) -> Iterator[tuple[str, str]]:
    """A server that answers."""
    process = subprocess.Popen(
        [COMMAND, "studio", str(folder / "runs"), "--images", str(folder), "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "400", "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://"))
        host, _, token = address.removeprefix("http://").partition("/?token=")
        while not answers(host, token):
            time.sleep(0.01)
        yield host, token
    finally:
        process.kill()
        process.communicate()


def answers(host: str, token: str) -> bool:
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        connection.request("GET", "/", headers={"Cookie": f"stssad={token}"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


SERVING: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "engine_speedup": (engine_speedup, ">= 2"),
    "score_overhead": (score_overhead, "<= 1.15"),
    "encoding_speedup": (encoding_speedup, ""),
    "watch_seconds": (watch_seconds, "<= 0.3"),
    "labels_a_second": (labels_a_second, ">= 200"),
}
