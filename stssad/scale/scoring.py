"""Scoring on a Ray cluster, by Ray Data: an actor for each CPU holds the model and its engine.

Ray schedules, retries and tolerates the loss of a node; a part is done when its file exists.
"""

import hashlib
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..images.decode import UnreadableError
from ..runs.folder import RunFolder
from ..runs.run import Run
from .addresses import fetch_all, find_addresses
from .parts import OutputParts, Row, Totals, digest_addresses, divide

PART_SIZE = 500  # images: some seconds of work, a file of some ten kilobytes


@dataclass(frozen=True)
class ScoreRequest:
    """Which images are scored, with which run, and into what."""

    run: Path
    source: str
    out: Path
    form: str = "parquet"
    part_size: int = PART_SIZE
    false_alarms: float | None = None
    engine: str = "auto"


def connect(address: str) -> Any:
    """Ray, on the cluster at the address, or on this machine (`local`)."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise ImportError(
            "--ray needs Ray Data; install it with: pip install 'stssad[ray]'"
        ) from None
    if not ray.is_initialized():
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
        if address == "local":  # of this machine alone, also where there is no network
            quiet |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"no Ray cluster at {address!r}: {reason}") from None
    return ray


class PartScorer:
    """Of an actor: holds the model, from the bytes of the driver's files, and its engine."""

    def __init__(self, files: dict[str, bytes], request: ScoreRequest) -> None:
        import torch

        from ..methods.engine import engine_for

        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            self.model = Run.open(Path(folder)).model()
        if request.false_alarms is not None:
            self.model.set_threshold(request.false_alarms)
        self.engine = engine_for(self.model.model_, request.engine, None)
        self.parts = OutputParts(request.out, request.form)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Score and write one part; how many images it holds."""
        addresses = list(row["addresses"])
        self.parts.write(int(row["part"]), list(self.score(addresses)))
        return {"part": row["part"], "n": len(addresses)}

    def score(self, addresses: list[str]) -> Iterator[Row]:
        from ..runs.predictions import score_files, skip_unreadable

        errors: dict[str, UnreadableError] = {}
        with fetch_all(addresses) as paths:
            names = dict(zip(map(str, paths), addresses, strict=True))

            def on_unreadable(error: UnreadableError) -> None:
                errors[names[str(error.path)]] = error

            scored = skip_unreadable(score_files(self.model, paths, self.engine), on_unreadable)
            predictions = (image.prediction for image in scored)
            rows = {names[x.image_path]: Row.of(x) for x in predictions}
        for address in addresses:
            if address in rows:
                yield Row(**{**vars(rows[address]), "image_path": address})
            else:
                yield Row(address, None, None, None, format_error(errors[address], address))


def format_error(error: UnreadableError, address: str) -> str:
    """The error, with the address that the user gave."""
    return str(error).replace(repr(str(error.path)), repr(address))


def score_on_ray(request: ScoreRequest, address: str) -> Iterator[int | Totals]:
    """The number of images scored so far, part by part; the totals last."""
    addresses = find_addresses(request.source)
    chunks = list(divide(addresses, request.part_size))
    run = RunFolder(request.run)
    files = {path.name: path.read_bytes() for path in run.model_files}
    parts = OutputParts(request.out.absolute(), request.form)
    parts.begin(
        {
            "model": hashlib.sha256(files[run.model.name]).hexdigest(),
            "images": digest_addresses(addresses),
            "part_size": request.part_size,
            "format": request.form,
            "false_alarms": request.false_alarms,
        }
    )
    missing = [k for k in range(len(chunks)) if not parts.path(k).is_file()]
    n_done = len(addresses) - sum(len(chunks[k]) for k in missing)
    yield n_done
    if missing:
        rows = [{"part": k, "addresses": chunks[k]} for k in missing]
        for n in score_parts(rows, files, request, address):
            n_done += n
            yield n_done
    yield parts.finish(len(chunks))


def score_parts(
    rows: list[dict[str, Any]], files: dict[str, bytes], request: ScoreRequest, address: str
) -> Iterator[int]:
    """The number of images of each part, as it is done."""
    ray = connect(address)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    n_cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    n_actors = min(n_cpus, len(rows))  # all at once: each takes seconds to start
    absolute = ScoreRequest(**{**vars(request), "out": request.out.absolute()})
    scored = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        PartScorer,
        fn_constructor_args=(files, absolute),
        num_cpus=1,
        compute=ray.data.ActorPoolStrategy(min_size=n_actors, max_size=n_actors),
    )
    for row in scored.iter_rows():
        yield int(row["n"])
