"""An encoder in ONNX Runtime: the features that `features_of` gives, in half the time on a CPU."""

import io
import warnings
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..features import Features
from .encoding import as_floats
from .patches import patches_of

OPSET = 17
ENGINES = ("auto", "torch", "onnx")
MANY = 150  # images, from which on a graph is worth making: it takes about two seconds
CLOSE = 1e-3  # to torch's features, relative to the largest; else the graph isn't the encoder's


def uses_onnx(engine: str, device: str, n_images: int | None) -> bool:
    """Whether ONNX Runtime is to run the network: by name, or because it is installed and there are
    many images (None: nobody knows how many)."""
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; use {', '.join(ENGINES)}")
    is_there = find_spec("onnxruntime") is not None
    if engine == "onnx" and not is_there:
        raise ImportError(
            "the engine onnx needs the package onnxruntime; install it with: pip install "
            "onnxruntime, or use the engine torch"
        )
    if engine == "onnx" and device != "cpu":
        raise ValueError(f"the engine onnx runs on the CPU, not on {device}; use torch")
    many = n_images is None or n_images >= MANY
    return engine == "onnx" or (engine == "auto" and is_there and device == "cpu" and many)


def shrinking(side: int, size: int) -> Tensor:
    """(m, h): what `shrunk` does to the rows and to the columns of an image, as a product."""
    return F.adaptive_avg_pool1d(torch.eye(side)[None], size)[0].T.contiguous()


def graph_of(module: nn.Module, example: Tensor, given: str, found: list[str]) -> bytes:
    """A module as an ONNX graph, for any number of images."""
    file: Any = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # shapes that are constants here, and are meant to be
        torch.onnx.export(
            module.eval(), (example,), file, dynamo=False, opset_version=OPSET,
            input_names=[given], output_names=found,
            dynamic_axes={name: {0: "n"} for name in (given, *found)},
        )  # fmt: skip
    written: bytes = file.getvalue()
    return written


def session_of(graph: bytes) -> Any:
    """One thread for each call: workers call it side by side."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class BothSizes(nn.Module):
    """Float images to embeddings and patches, and to those of the images at the smaller size."""

    def __init__(self, encoder: nn.Module, image_size: int, small_size: int | None) -> None:
        super().__init__()
        self.encoder, self.small_size = encoder, small_size
        self.shrinks: Tensor
        if small_size is not None:
            self.register_buffer("shrinks", shrinking(image_size, small_size), persistent=False)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        found = self.features(images)
        if self.small_size is None:
            return found
        return (*found, *self.features(self.shrinks @ images @ self.shrinks.T))

    def features(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = self.encoder.features(images)  # type: ignore[operator]
        patches = patches_of(maps)
        pooled: Tensor = self.encoder.pooled(maps)  # type: ignore[operator]
        return (pooled,) if patches is None else (pooled, patches)


def compiled(
    encoder: nn.Module, image_size: int, small_size: int | None, engine: str, device: str,
    n_images: int,
) -> "CompiledEncoder | None":  # fmt: skip
    """The encoder in ONNX Runtime where that is wanted, or worth it; None: torch runs it."""
    if not uses_onnx(engine, device, n_images):
        return None
    try:
        return CompiledEncoder(encoder, image_size, small_size)
    except Exception as error:  # an encoder of one's own that has no graph
        if engine == "onnx":
            raise ValueError(f"the engine onnx can't run this encoder: {error}") from error
        return None


class CompiledEncoder:
    """Called with a few images, uint8 or float, as `features_of` is with an encoder."""

    def __init__(self, encoder: nn.Module, image_size: int, small_size: int | None) -> None:
        module = BothSizes(encoder, image_size, small_size)
        blank = torch.zeros(2, 3, image_size, image_size)
        tried = torch.rand(blank.shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            wanted = module.eval()(tried)
        self.step = len(wanted) // (1 if small_size is None else 2)  # outputs for each size
        names = [f"features_{k}" for k in range(len(wanted))]
        self.session = session_of(graph_of(module, blank, "images", names))
        found = self.session.run(None, {"images": tried.numpy()})
        for ours, theirs in zip(found, wanted, strict=True):
            apart = float((torch.from_numpy(ours) - theirs).abs().max())
            if apart > CLOSE * float(theirs.abs().max().clamp_min(1e-12)):
                raise ValueError(
                    f"{type(encoder).__name__} gives other features in ONNX Runtime than in torch; "
                    "use the engine torch"
                )

    def __call__(self, images: Tensor) -> Features:
        floats = as_floats(images, torch.device("cpu")).float().contiguous()
        found = [torch.from_numpy(x) for x in self.session.run(None, {"images": floats.numpy()})]
        pairs = [found[i : i + self.step] for i in range(0, len(found), self.step)]
        each = [Features(pair[0], pair[1] if len(pair) == 2 else None) for pair in pairs]
        return each[0] if len(each) == 1 else replace(each[0], small=each[1])
