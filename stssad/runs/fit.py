"""From a request to a finished run: whoever asks for a fit goes through here.

request, inputs = read_inputs(request, warn)
with begun(folder, request, command, resume):
    fit_run(folder, request, inputs, notify)
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ..images.decode import UnreadableError
from ..images.inspection import Folder, Remark, inspect
from ..images.source import FitImages, duplicates, find_images, images_for_fit, read_images, settled
from ..methods.refit import collect_refit_data
from ..model import STSSAD
from ..report.material import Material, explain_material, gather
from ..report.page import write_report
from ..scoring.score import PretrainedScore
from ..storage.files import intact, replacing, write_tensors
from ..tuning.progress import Notify
from .environment import environment
from .folder import ADVICE, RunFolder
from .history import write_history
from .predictions import IN_BATCH, pool_predictions, write_predictions
from .request import FitRequest, check_same
from .run import Run


@dataclass(frozen=True)
class Inputs:
    """The images of a request, as they were read."""

    images: FitImages
    train_paths: list[Path] | None  # None: they come from memory
    pool_paths: list[Path] | None
    unreadable: list[UnreadableError] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)  # what is odd about the files


def read_inputs(
    request: FitRequest, warn: Callable[[UnreadableError], None]
) -> tuple[FitRequest, Inputs]:
    """Both folders, none of whose files is in both; and the request with its reading settled."""
    if request.normal is None or request.unlabeled is None:
        raise ValueError("this run was fitted to images from memory, so it can't be fitted again")
    normal, pool = find_images(request.normal), find_images(request.unlabeled)
    check_disjoint(normal, pool)
    unreadable: list[UnreadableError] = []

    def on_unreadable(error: UnreadableError) -> None:
        unreadable.append(error)
        warn(error)

    reading, side = settled(request.settings.reading, normal)
    handler = None if request.strict else on_unreadable
    train, train_paths = read_images(normal, reading, handler)
    unlabeled, pool_paths = read_images(pool, reading, handler)
    images = FitImages(train, unlabeled, reading, side, [])
    in_normal = [error for error in unreadable if error.path in set(normal)]
    in_pool = [error for error in unreadable if error.path not in set(normal)]
    remarks = inspect(
        Folder.of("normal", request.normal, train_paths, train, in_normal),
        Folder.of("unlabeled", request.unlabeled, pool_paths, unlabeled, in_pool),
    )
    return request.settled(reading), Inputs(images, train_paths, pool_paths, unreadable, remarks)


def check_disjoint(normal: Sequence[Path], pool: Sequence[Path]) -> None:
    if same := duplicates(normal, pool):
        one, other = same[0]
        more = f" (and {len(same) - 1} more)" if len(same) > 1 else ""
        raise ValueError(
            f"{str(one)!r} and {str(other)!r} are the same file{more}; an image must be either "
            "known to be normal or unlabeled, so remove it from one of the folders"
        )


def images_from_memory(request: FitRequest, train: torch.Tensor, pool: torch.Tensor) -> Inputs:
    """For demonstrations, which make their images."""
    return Inputs(images_for_fit(train, pool, request.settings.reading), None, None)


@contextmanager
def begun(
    folder: RunFolder, request: FitRequest, command: str, resume: bool = False
) -> Iterator[None]:
    """Alone with the folder of a run; a new one whose fit fails before it has done anything, since
    there are too few images, is removed again."""
    is_new = not folder.is_run
    begin_run(folder, request, command, resume)
    try:
        with folder.locked():
            yield
    except ValueError:
        if is_new:
            folder.remove_unused()
        raise


def begin_run(folder: RunFolder, request: FitRequest, command: str, resume: bool = False) -> None:
    """A new run's folder, or one that was begun with the same request."""
    if folder.path.exists() and not folder.path.is_dir():
        raise ValueError(f"--out {str(folder.path)!r} is a file; give a folder")
    if not folder.is_run:
        check_empty(folder.path)
        origin = {"title": folder.path.resolve().name, "command": command}
        folder.write_metadata({**origin, "request": request.content(), **environment()})
        return
    if not resume:
        state = "a finished run" if folder.has_model else "a run that was stopped"
        advice = "" if folder.has_model else ", or resume it by adding --resume"
        raise ValueError(f"{str(folder.path)!r} holds {state}; give another --out{advice}")
    with intact(folder.metadata_file, ADVICE):
        before = folder.metadata["request"]
        check_same(before, request, folder.path)


def check_empty(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(
            f"{str(folder)!r} isn't empty and isn't a run; give --out a new folder, so that "
            "nothing of yours is overwritten"
        )


def fit_run(
    folder: RunFolder, request: FitRequest, inputs: Inputs, notify: Notify | None = None
) -> STSSAD:
    """Fit, resumed from what a stopped fit has left, and write all that the run holds; for the
    holder of the folder's lock.

    The scores come first: a fit that is stopped while it explains them has them, and `explain_run`
    does the rest.
    """
    folder.clear_torn()
    folder.add_metadata({"request": request.content()})
    began = time.monotonic()

    def on_scored(model: STSSAD) -> None:
        write_scored(folder, request, inputs, model)
        folder.add_metadata(numbers_of(inputs, time.monotonic() - began))

    model = request.estimator().fit(
        inputs.images, None, notify, folder.checkpoints, on_scored=on_scored
    )
    folder.add_metadata(numbers_of(inputs, time.monotonic() - began))
    write_explained(folder, request, inputs, model)
    return model


def explain_run(
    folder: RunFolder, request: FitRequest, inputs: Inputs, notify: Notify | None = None
) -> STSSAD:
    """What a run still lacks that has its scores; they and the threshold stay."""
    folder.clear_torn()
    model = Run(folder.path).model(device=request.device)
    estimator = request.estimator()
    model.jobs, model.engine = estimator.jobs, estimator.engine
    model.explain_pool(inputs.images, None, notify, folder.checkpoints)
    write_explained(folder, request, inputs, model)
    return model


def fit_or_explain(
    folder: RunFolder, request: FitRequest, inputs: Inputs, notify: Notify | None = None
) -> STSSAD:
    """Whatever the run lacks."""
    work = explain_run if folder.has_model else fit_run
    return work(folder, request, inputs, notify)


def numbers_of(inputs: Inputs, seconds: float) -> dict[str, object]:
    """For the run's metadata."""
    pool = inputs.images.pool
    return {
        "seconds": round(seconds, 1),
        "n_normal": len(inputs.images.train),
        "n_unlabeled": 0 if pool is None else len(pool),
        "unreadable": [str(error) for error in inputs.unreadable],
        "remarks": [remark.content() for remark in inputs.remarks],
    }


def write_scored(folder: RunFolder, request: FitRequest, inputs: Inputs, model: STSSAD) -> None:
    """Predictions, what a refit needs, the model, and a page without an explanation."""
    write_scores(folder, model, pool_names(inputs))
    if isinstance(score := model.model_.scorer, PretrainedScore):
        write_tensors(folder.refit, collect_refit_data(score, model.workings_).tensors())
    images = inputs.images
    assert images.pool is not None
    files = (inputs.train_paths, inputs.pool_paths, request.unlabeled or Path("."))
    gather(model, images.train, images.pool, *files).save(folder.path)
    model.save(folder.path)
    write_report(Run(folder.path))


def write_explained(folder: RunFolder, request: FitRequest, inputs: Inputs, model: STSSAD) -> None:
    """Trajectories, examples of the learned augmentation, and the page again."""
    write_history(folder.history, model.candidates_)
    if model.candidates_:
        train, pool = inputs.images.train, inputs.images.pool
        assert pool is not None
        material = Material.load(folder.path)
        explain_material(material, model, train, pool).save(folder.path)
        model.save(folder.path)
        write_report(Run(folder.path))
    folder.clear_checkpoints()
    folder.add_metadata({"complete": bool(model.candidates_)})


def complete(folder: RunFolder) -> None:
    """The page of a run that lacks nothing else, or wants no explanation."""
    if not folder.report.is_file():
        write_report(Run(folder.path))


def pool_names(inputs: Inputs) -> list[Path]:
    if inputs.pool_paths is not None:
        return inputs.pool_paths
    n_pool = 0 if inputs.images.pool is None else len(inputs.images.pool)
    return [Path(f"image {i}") for i in range(n_pool)]


def write_scores(folder: RunFolder, model: STSSAD, names: Sequence[Path]) -> None:
    """Of the pool, by the model as it is now."""
    with replacing(folder.scores, "surrogateescape") as file:
        write_predictions(pool_predictions(model, names), file, "csv", names=IN_BATCH)
