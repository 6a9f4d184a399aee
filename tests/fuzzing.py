"""Mutated files of every kind that stssad reads: each ends in a result or in one sentence.

    python tests/fuzzing.py --cases 5000 --seed 0        (make fuzz)

A case must not raise anything but what the command line turns into one sentence, take more than
SECONDS or more memory than MEMORY, give a number that isn't finite, or change a file.
"""

import argparse
import hashlib
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from stssad import STSSAD, PretrainedSettings, Rotation, Settings
from stssad.cli.fit import choose_settings
from stssad.experiments.bench.cell import Cell, Line, Store
from stssad.experiments.testbeds.synthetic import texture_crops
from stssad.images.decode import UnreadableError, tried
from stssad.images.reading import Reading
from stssad.report.group_names import read_group_names
from stssad.review.labels import LABELS, read_labels
from stssad.runs.predictions import Prediction, list_paths, write_predictions
from stssad.runs.run import Run
from stssad.storage.files import (
    json_digest,
    read_tensors_and_metadata,
    replacing,
    write_json,
    write_tensors,
)
from stssad.storage.table import read_table
from stssad.tuning.checkpoint import read_checkpoint
from stssad.tuning.tuner_codec import TunerCodec

SENTENCES = (ValueError, TypeError, OSError, ImportError)  # what `main` prints as one
SECONDS, MEMORY = 20, 8 * 2**30
FORMATS = {"png": "PNG", "jpg": "JPEG", "bmp": "BMP", "tif": "TIFF", "webp": "WEBP"}
Generator = np.random.Generator
ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x" * 1000,
    [],
    {},
    [[]],
    2**70,
    {"a": {"a": []}},
    "../../etc/passwd",
    -0.5,
    [1, "2", None],
]


class TooLongError(Exception):
    """A case that took more than SECONDS."""


def mutated(content: bytes, rng: Generator) -> bytes:
    """Bytes flipped, cut off, repeated or put in."""
    data, kind = bytearray(content), int(rng.integers(0, 5))
    if not data:
        return b""
    if kind == 0:
        return bytes(data[: int(rng.integers(0, len(data)))])
    if kind == 1:  # near the beginning, where sizes and types stand
        for at in rng.integers(0, min(64, len(data)), 3):
            data[at] = int(rng.integers(0, 256))
    elif kind == 2:
        for at in rng.integers(0, len(data), int(rng.integers(1, 40))):
            data[at] ^= 1 << int(rng.integers(0, 8))
    elif kind == 3:
        start = int(rng.integers(0, len(data)))
        data[start:start] = data[start : start + int(rng.integers(1, 200))]
    else:
        start = int(rng.integers(0, len(data)))
        data[start : start + 4] = bytes(rng.integers(0, 256, 4).astype(np.uint8))
    return bytes(data)


def changed(content: Any, rng: Generator) -> Any:
    """JSON with one place replaced by something odd, or removed."""
    content = json.loads(json.dumps(content))
    at, place = content, content
    while isinstance(place, dict | list) and place and rng.random() < 0.75:
        at = place
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = keys[int(rng.integers(0, len(keys)))]
        place = place[key]
    if at is place or not isinstance(at, dict | list) or not at:
        return content
    if rng.random() < 0.3:
        del at[key]
    else:
        at[key] = ODD_VALUES[int(rng.integers(0, len(ODD_VALUES)))]
    return content


class Corpus:
    """Whole files of every kind, to be mutated."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        crops = texture_crops("grass", 24, 32, torch.Generator().manual_seed(0))
        self.images = self._image_files((crops[0].permute(1, 2, 0).numpy() * 255).astype(np.uint8))
        settings = Settings.quick(
            image_size=32,
            width=4,
            warm_start_epochs=1,
            max_iterations=2,
            smoothing=1,
            final_updates=2,
        )
        model = STSSAD("paper", Rotation(angles_deg=(90, 180)), settings=settings)
        model.fit(crops, crops[:9], checkpoints=folder / "checkpoints")
        model.save(folder / "model")
        self.new = crops[:2]
        few = PretrainedSettings(image_size=64, max_iterations=1, val_augmented_samples=2)
        STSSAD(settings=few).fit(texture_crops("grass", 16, 64, torch.Generator())).save(
            folder / "pretrained"
        )
        self.checkpoint = next((folder / "checkpoints").glob("*.safetensors"))

    def _image_files(self, pixels: Any) -> dict[str, bytes]:
        made = {}
        kinds = [
            *((f"rgb.{end}", Image.fromarray(pixels), form) for end, form in FORMATS.items()),
            ("deep.png", Image.fromarray(pixels[..., 0].astype(np.uint16) * 16), "PNG"),
            ("deep.tif", Image.fromarray(pixels[..., 0].astype(np.float32) / 255), "TIFF"),
            ("palette.png", Image.fromarray(pixels).convert("P"), "PNG"),
            ("cmyk.jpg", Image.fromarray(pixels).convert("CMYK"), "JPEG"),
            ("alpha.webp", Image.fromarray(pixels).convert("RGBA"), "WEBP"),
        ]
        for name, image, form in kinds:
            path = self.folder / name
            image.save(path, form)
            made[name] = path.read_bytes()
        return made


def image_case(corpus: Corpus, rng: Generator, place: Path) -> str:
    names = list(corpus.images)
    name = names[int(rng.integers(0, len(names)))]
    path = place / name
    content = mutated(corpus.images[name], rng)
    path.write_bytes(content)
    aspect = ("stretch", "crop", "pad")[int(rng.integers(0, 3))]
    found = tried(path, Reading(32, aspect))  # type: ignore[arg-type]
    assert path.read_bytes() == content, "an image was changed"
    if isinstance(found, UnreadableError):
        raise found
    assert found.shape == (32, 32, 3) and found.dtype == np.uint8
    return "image"


def model_case(corpus: Corpus, rng: Generator, place: Path) -> str:
    source = corpus.folder / ("model" if rng.random() < 0.7 else "pretrained")
    for name in ("model.json", "model.safetensors"):
        (place / name).write_bytes((source / name).read_bytes())
    if rng.random() < 0.5:
        name = ("model.json", "model.safetensors")[int(rng.integers(0, 2))]
        (place / name).write_bytes(mutated((place / name).read_bytes(), rng))
    else:  # by someone who knows about the checksum
        content = json.loads((place / "model.json").read_text())
        content.pop("sha256")
        content = changed(content, rng)
        write_json(place / "model.json", {**content, "sha256": json_digest(content)})
    return scored_case(place)


def forged(tensor: torch.Tensor, rng: Generator) -> torch.Tensor:
    """Of another shape or type, or with numbers that aren't finite."""
    kind = int(rng.integers(0, 6))
    if kind == 0 and tensor.ndim:
        return tensor[: int(rng.integers(0, len(tensor) + 1))]
    if kind == 1:
        return tensor.reshape(-1)[:1].expand(3, 2).clone() if tensor.numel() else torch.zeros(3, 2)
    if kind == 2 and tensor.is_floating_point():
        return torch.full_like(tensor, (math.nan, math.inf, 1e30, 0.0)[int(rng.integers(0, 4))])
    if kind == 3:
        return tensor.to(torch.int32 if tensor.is_floating_point() else torch.float32)
    if kind == 4:
        return tensor[None]
    return -tensor if tensor.is_floating_point() else tensor - 1


def tensor_case(corpus: Corpus, rng: Generator, place: Path) -> str:
    """A model whose tensors somebody has changed who knows about the checksum."""
    source = corpus.folder / ("model" if rng.random() < 0.3 else "pretrained")
    (place / "model.json").write_bytes((source / "model.json").read_bytes())
    tensors, metadata = read_tensors_and_metadata(source / "model.safetensors")
    others = [name for name in tensors if not name.startswith("encoder.") or rng.random() < 0.02]
    name = others[int(rng.integers(0, len(others)))]
    if rng.random() < 0.15:
        del tensors[name]
    else:
        tensors[name] = forged(tensors[name], rng)
    write_tensors(place / "model.safetensors", tensors, metadata)
    return scored_case(place)


def scored_case(place: Path) -> str:
    model = STSSAD.load(place)
    size = model.image_size_
    scores = model.decision_function(torch.rand(2, 3, size, size))
    assert np.isfinite(scores).all() and np.isfinite(model.threshold_), "a score isn't finite"
    Run(place).summary()
    return "model"


def review_case(corpus: Corpus, rng: Generator, place: Path) -> str:
    """Labels and names of groups."""
    names = {str(k): f"group {k}" for k in range(3)}
    text = json.dumps(changed(names, rng) if rng.random() < 0.5 else names).encode()
    (place / "groups.json").write_bytes(mutated(text, rng) if rng.random() < 0.5 else text)
    rows = "image_path,label,who,at\n" + "".join(f"a{k}.png,good,ann,\n" for k in range(5))
    (place / "labels.csv").write_bytes(mutated(rows.encode(), rng))
    try:
        assert all(len(name) <= 60 for name in read_group_names(place).values())
    except SENTENCES:
        pass
    assert all(label.label in LABELS for label in read_labels(place / "labels.csv").values())
    return "review"


def checkpoint_case(corpus: Corpus, rng: Generator, place: Path) -> str:
    path = place / "restart.safetensors"
    tensors, metadata = read_tensors_and_metadata(corpus.checkpoint)
    if rng.random() < 0.5:
        path.write_bytes(mutated(corpus.checkpoint.read_bytes(), rng))
    else:
        write_tensors(path, tensors, changed(metadata, rng))
    content = read_checkpoint(path, metadata["fingerprint"])
    from stssad.storage.files import intact

    with intact(path, "delete it"):
        TunerCodec().unpack(content)
    return "checkpoint"


def settings_case(corpus: Corpus, rng: Generator, place: Path) -> str:
    kind = Settings if rng.random() < 0.5 else PretrainedSettings
    names = [f.name for f in fields(kind)]
    name = names[int(rng.integers(0, len(names)))]
    values = [
        "nan",
        "inf",
        "-1",
        "0",
        "'x'",
        "[1]",
        "true",
        "1e400",
        "99999999999",
        "{a=1}",
        "\x00",
    ]
    text = f"{name} = {values[int(rng.integers(0, len(values)))]}\n"
    path = place / "settings.toml"
    path.write_bytes(mutated(text.encode(), rng) if rng.random() < 0.3 else text.encode())
    method = "paper" if kind is Settings else "pretrained"
    asdict(choose_settings(method, None, path, {}))
    return "settings"


def line_case(corpus: Corpus, rng: Generator, place: Path) -> str:
    line = Line(Cell("tile", "oil", "AE", 0), 0.5, 1.0, {"size": 0.1}, "0", 10, 5, 5)
    text = json.dumps(changed(json.loads(line.to_json()), rng)).encode()
    (place / "tile.jsonl").write_bytes(
        (mutated(text, rng) if rng.random() < 0.5 else text).replace(b"\n", b"") + b"\n"
    )
    Store(place).lines("tile")
    return "result line"


def name_case(corpus: Corpus, rng: Generator, place: Path) -> str:
    raw = bytes(int(b) for b in rng.integers(1, 256, int(rng.integers(1, 60))) if b != 47)
    names = [os.fsdecode(raw or b"x"), "plain"]
    with replacing(place / "s.csv", "surrogateescape") as file:
        write_predictions((Prediction(n, 0.5, 0, 0.5) for n in names), file, "csv")
    # Names that a spreadsheet would compute are guarded in the file; reading takes the guard off.
    assert [row["image_path"] for row in read_table(place / "s.csv")] == names, "a name was lost"
    lines = b"\n".join(os.fsencode(n) for n in names)
    (place / "list").write_bytes(lines)
    list(list_paths(str(place / "list")))
    return "name"


CASES: list[Callable[[Corpus, Generator, Path], str]] = [
    image_case,
    image_case,
    image_case,
    model_case,
    checkpoint_case,
    settings_case,
    line_case,
    name_case,
    tensor_case,
    review_case,
]


def fuzz(n: int, seed: int, say: Callable[[str], None] = lambda words: None) -> Counter[str]:
    """Run n cases; the first that breaks a promise is raised, with its number."""
    torch.set_num_threads(1)  # threads that wait for one another would look like a hang
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TooLongError()))
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = Corpus(folder)
        before = tree_digest(folder)
        place = Path(tempfile.mkdtemp())
        for number in range(n):
            rng = np.random.default_rng([seed, number])
            case = CASES[number % len(CASES)]
            signal.alarm(SECONDS)
            try:
                counts[f"{case(corpus, rng, place)}: read"] += 1
            except SENTENCES as error:
                assert str(error).strip(), f"case {number}: {type(error).__name__} says nothing"
                counts[f"{case.__name__.removesuffix('_case')}: refused"] += 1
            except BaseException as error:
                raise RuntimeError(f"case {number} of seed {seed}, {case.__name__}") from error
            finally:
                signal.alarm(0)
            if number % 500 == 499:
                say(f"{number + 1} of {n} cases")
        assert tree_digest(folder) == before, "a file was changed"
    return counts


def tree_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(os.fsencode(path) + path.read_bytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    began = time.monotonic()
    counts = fuzz(wanted.cases, wanted.seed, lambda words: print(words, flush=True))
    for name, n in sorted(counts.items()):
        print(f"{name:22} {n}")
    print(
        f"{wanted.cases} cases in {time.monotonic() - began:.0f} s: no traceback, no hang, no NaN"
    )
    sys.exit(0)


if __name__ == "__main__":
    main()
