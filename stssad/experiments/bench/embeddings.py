"""Embeddings of one demonstrative task, saved for the figure that maps them."""

from pathlib import Path

import torch

from ...encoders.encoding import as_floats, embed_all
from ...model import STSSAD
from ...storage.files import write_tensors
from ..testbeds.testbed import find_testbed

N_SAVED = 128  # of each kind, at most


def save_embeddings(task_name: str, seed: int, results: Path) -> Path:
    """Training, augmented and pool images under the chosen start, as float16, and labels."""
    bed = find_testbed("demonstrative")
    settings = bed.settings("cpu")
    task = bed.load(task_name, "cpu", settings.reading, "transductive", seed)
    model = STSSAD("paper", settings=settings, seed=seed, jobs=2)
    model.fit(task.train, task.pool, warm_starts=results / ".warm-starts")
    sources = as_floats(task.train[:N_SAVED], torch.device("cpu"))
    augmentation = model.augmentation_
    assert augmentation is not None and model.chosen_ is not None
    noise = augmentation.draw(len(sources), torch.Generator().manual_seed(seed))
    a = torch.tensor(model.candidates_[model.chosen_].a)
    augmented = augmentation(sources, a, noise)
    sets = {"training": sources, "augmented": augmented, "pool": task.pool[:N_SAVED]}
    encoder = model.model_.encoder
    tensors = {name: embed_all(encoder, images).half() for name, images in sets.items()}
    tensors["pool_labels"] = torch.from_numpy(task.test_labels[:N_SAVED]).to(torch.uint8)
    path = results / "embeddings.safetensors"
    results.mkdir(parents=True, exist_ok=True)
    write_tensors(path, tensors, {"task": task_name, "seed": seed, "preset": "cpu"})
    return path
