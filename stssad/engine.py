"""What runs a fitted model over many images: torch, or ONNX Runtime, which is faster on a CPU.

The graph is made of the model when scoring begins, which takes a second or two: for few images
torch is sooner done.
"""

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from .exported import graph_of
from .model import STSSAD
from .scoring.calibration import Scores

ENGINES = ("auto", "torch", "onnx")
MANY = 200  # images, from which on a graph is worth making
Engine = Callable[[Tensor], Scores]


def engine_for(model: STSSAD, name: str, n_images: int | None) -> Engine:
    """By its name; `auto` chooses by what is installed and how many images there are (None: that
    isn't known)."""
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; use {', '.join(ENGINES)}")
    installed = find_spec("onnxruntime") is not None
    if name == "onnx" and not installed:
        raise ImportError(
            "the engine onnx needs the package onnxruntime; install it with: pip install "
            "'stssad[onnx]', or use --engine torch"
        )
    if name == "onnx" and model.device != "cpu":
        raise ValueError(f"the engine onnx runs on the CPU, not on {model.device}; use torch")
    is_worth_it = installed and model.device == "cpu" and (n_images is None or n_images >= MANY)
    if name == "torch" or (name == "auto" and not is_worth_it):
        return model.model_
    try:
        return OnnxEngine(model)
    except Exception:
        if name == "onnx":
            raise
        return model.model_  # an encoder of one's own that has no graph


class OnnxEngine:
    """The model in ONNX Runtime, one thread for each call: workers call it side by side."""

    def __init__(self, model: STSSAD) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        graph = graph_of(model, as_distances=True)
        self.session = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )
        self.has_maps = model.map_scale_ is not None

    def __call__(self, images: Tensor) -> Scores:
        """Of uint8 images (n, 3, m, m)."""
        pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
        scores, _, _, distances = self.session.run(None, {"pixels": pixels})
        maps = torch.from_numpy(distances) if self.has_maps else None
        return Scores(torch.from_numpy(scores), [], maps)
