"""What scores many images: the model in torch, or in ONNX Runtime, which is faster on a CPU.

The graph is made of the model when scoring begins: for few images torch is sooner done.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .encoders.compiled import session_of, uses_onnx
from .encoders.encoding import each_chunk
from .exported import graph_of_model
from .methods.anomaly_model import joined
from .scoring.calibration import Scores

if TYPE_CHECKING:
    from .model import STSSAD

Engine = Callable[[Tensor], Scores]


def engine_for(model: "STSSAD", name: str, n_images: int | None) -> Engine:
    """By its name; `auto` chooses by what is installed and how many images there are (None: that
    isn't known)."""
    if not uses_onnx(name, model.device, n_images):
        return model.model_
    try:
        return OnnxEngine(model)
    except Exception:
        if name == "onnx":
            raise
        return model.model_  # an encoder of one's own that has no graph


def scored(model: "STSSAD", images: Tensor) -> Scores:
    """Scores and maps of any number of images, in the engine that the model asks for; ONNX
    Runtime's takes whole numbers."""
    if images.dtype != torch.uint8:
        return model.model_.score_all(images)
    return joined(each_chunk(images, engine_for(model, model.engine, len(images))))


class OnnxEngine:
    """The model in ONNX Runtime."""

    def __init__(self, model: "STSSAD") -> None:
        self.session = session_of(graph_of_model(model, as_distances=True))
        self.has_maps = model.map_scale_ is not None

    def __call__(self, images: Tensor) -> Scores:
        """Of uint8 images (n, 3, m, m)."""
        pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
        scores, _, _, distances = self.session.run(None, {"pixels": pixels})
        maps = torch.from_numpy(distances) if self.has_maps else None
        return Scores(torch.from_numpy(scores), [], maps)
