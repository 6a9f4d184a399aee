"""What scores many images: the model in torch, or the same module in ONNX Runtime, which is faster
on a CPU.

The graph is made once for a model, when scoring of many images begins.
"""

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..encoders.encoding import device_of, each_chunk
from ..encoders.engine import ExportError, graph_of, session_of, uses_onnx, warn_of_fallback
from ..scoring.score import Scores
from .anomaly_model import AnomalyModel, concatenate

Engine = Callable[[Tensor], Scores]
_MAKING = threading.Lock()


class FlatScores(nn.Module):
    """The model's scores and maps as a tuple of tensors, for a graph's outputs."""

    def __init__(self, model: AnomalyModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        scores = self.model(images)
        return (scores.scores,) if scores.maps is None else (scores.scores, scores.maps)


class OnnxEngine:
    """A model in ONNX Runtime, called with uint8 images (n, 3, m, m)."""

    def __init__(self, model: AnomalyModel) -> None:
        size = model.image_size
        blank = torch.zeros(2, 3, size, size, dtype=torch.uint8)
        outputs = ["scores", "maps"] if model(blank).maps is not None else ["scores"]
        self.session: Any = session_of(graph_of(FlatScores(model), blank, "images", outputs))

    def __call__(self, images: Tensor) -> Scores:
        outputs = self.session.run(None, {"images": images.contiguous().numpy()})
        maps = torch.from_numpy(outputs[1]) if len(outputs) > 1 else None
        return Scores(torch.from_numpy(outputs[0]), [], maps)


# None: this model has no graph.
_ENGINES: WeakKeyDictionary[AnomalyModel, OnnxEngine | ExportError] = WeakKeyDictionary()


def engine_for(model: AnomalyModel, name: str, n_images: int | None) -> Engine:
    """By its name; `auto` chooses by what is installed and the number of images (None: unknown),
    and falls back on torch, with a warning, where a model has no graph."""
    if not uses_onnx(name, device_of(model).type, n_images):
        return model
    with _MAKING:  # two threads don't both make it
        engine = _ENGINES.get(model) or build_engine(model, name)
        _ENGINES[model] = engine
    if not isinstance(engine, ExportError):
        return engine
    if name == "onnx":
        raise engine
    return model


def build_engine(model: AnomalyModel, name: str) -> OnnxEngine | ExportError:
    """The engine, or why there is none."""
    try:
        return OnnxEngine(model)
    except ExportError as error:
        if name == "auto":
            warn_of_fallback("this model", error)
        return error


def score_images(model: AnomalyModel, images: Tensor, engine: str) -> Scores:
    """Scores and maps of any number of images, in the engine of that name; ONNX Runtime's takes
    whole numbers."""
    if images.dtype != torch.uint8:
        return model.score_all(images)
    return concatenate(each_chunk(images, engine_for(model, engine, len(images))))
