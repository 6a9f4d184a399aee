"""Scoring on a Ray cluster, by Ray Data: an actor for each CPU holds the model and its engine.

Ray schedules, retries and bears the loss of a node; a part is done when its file is there.
"""

import hashlib
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..images import UnreadableError
from ..run import Run
from .addresses import addresses_of, local
from .parts import Parts, Row, Totals, digest_of, divided

MODEL_FILES = ("model.json", "model.safetensors", "environment.json")
PART_SIZE = 500  # images: some seconds of work, a file of some ten kilobytes


@dataclass(frozen=True)
class Request:
    """What is asked for."""

    run: Path
    source: str
    out: Path
    form: str = "parquet"
    part_size: int = PART_SIZE
    false_alarms: float | None = None
    engine: str = "auto"


def connect(address: str) -> Any:
    """Ray, on the cluster at the address, or on one of this machine's own (`local`)."""
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
    """In an actor: the model, unpacked from the driver's bytes, and its engine."""

    def __init__(self, files: dict[str, bytes], request: Request) -> None:
        import torch

        from ..engine import engine_for

        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            self.model = Run.open(Path(folder)).model()
        if request.false_alarms is not None:
            self.model.set_threshold(request.false_alarms)
        self.engine = engine_for(self.model, request.engine, None)
        self.parts = Parts(request.out, request.form)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """One part: scored, written; how many images it holds."""
        addresses = list(row["addresses"])
        self.parts.write(int(row["part"]), list(self.scored(addresses)))
        return {"part": row["part"], "n": len(addresses)}

    def scored(self, addresses: list[str]) -> Iterator[Row]:
        from ..predictions import score_files

        errors: dict[str, UnreadableError] = {}
        with local(addresses) as paths:
            names = dict(zip(map(str, paths), addresses, strict=True))

            def on_unreadable(error: UnreadableError) -> None:
                errors[names[str(error.path)]] = error

            found = score_files(self.model, paths, on_unreadable, engine=self.engine)
            rows = {names[each.image_path]: Row.of(each) for each in found}
        for address in addresses:
            if address in rows:
                yield Row(**{**vars(rows[address]), "image_path": address})
            else:
                yield Row(address, None, None, None, told(errors[address], address))


def told(error: UnreadableError, address: str) -> str:
    """Why, by the name that the user knows."""
    return str(error).replace(repr(str(error.path)), repr(address))


def score_on_ray(request: Request, address: str) -> Iterator[int | Totals]:
    """How many images are done, part by part; the totals last."""
    addresses = addresses_of(request.source)
    todo = list(divided(addresses, request.part_size))
    files = {name: (request.run / name).read_bytes() for name in MODEL_FILES}
    parts = Parts(request.out.absolute(), request.form)
    parts.begin({
        "model": hashlib.sha256(files["model.json"]).hexdigest(),
        "images": digest_of(addresses),
        "part_size": request.part_size,
        "format": request.form,
        "false_alarms": request.false_alarms,
    })  # fmt: skip
    missing = [k for k in range(len(todo)) if not parts.path(k).is_file()]
    n_done = len(addresses) - sum(len(todo[k]) for k in missing)
    yield n_done
    if missing:
        rows = [{"part": k, "addresses": todo[k]} for k in missing]
        for n in in_parts(rows, files, request, address):
            n_done += n
            yield n_done
    yield parts.finish(len(todo))


def in_parts(
    rows: list[dict[str, Any]], files: dict[str, bytes], request: Request, address: str
) -> Iterator[int]:
    """Images of each part as it is done."""
    ray = connect(address)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    n_cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    n_actors = min(n_cpus, len(rows))  # all from the beginning: each takes seconds to get ready
    absolute = Request(**{**vars(request), "out": request.out.absolute()})
    scored = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        PartScorer,
        fn_constructor_args=(files, absolute),
        num_cpus=1,
        compute=ray.data.ActorPoolStrategy(min_size=n_actors, max_size=n_actors),
    )
    for row in scored.iter_rows():
        yield int(row["n"])
