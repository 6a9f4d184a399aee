"""Modules in ONNX Runtime: the numbers that torch gives, in half the time on a CPU."""

import io
import warnings
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from .encoding import as_floats, features_of
from .features import Features

OPSET = 17
ENGINES = ("auto", "torch", "onnx")
MANY = 150  # images, from which on a graph is worth making: it takes about two seconds
CLOSE = 1e-3  # to torch's features, relative to the largest; else the graph isn't the encoder's


class ExportError(ValueError):
    """A module that has no ONNX graph, or one that computes something else."""


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


def graph_of(module: nn.Module, example: Tensor, given: str, outputs: list[str]) -> bytes:
    """A module as an ONNX graph, for any number of images."""
    file: Any = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # shapes that are constants here, and are meant to be
        try:
            torch.onnx.export(
                module.eval(),
                (example,),
                file,
                dynamo=False,
                # Else banks are written three times: as they are, squared and transposed. ONNX
                # Runtime folds constants itself when it loads the graph.
                do_constant_folding=False,
                opset_version=OPSET,
                input_names=[given],
                output_names=outputs,
                dynamic_axes={name: {0: "n"} for name in (given, *outputs)},
            )
        except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
            raise ExportError(first_line(error)) from error
    written: bytes = file.getvalue()
    return written


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def session_of(graph: bytes) -> Any:
    """One thread for each call: workers call it side by side."""
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, NotImplemented

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except (Fail, InvalidGraph, NotImplemented) as error:
        raise ExportError(first_line(error)) from error


def warn_of_fallback(what: str, error: ExportError) -> None:
    """Where `auto` falls back on torch: once for each reason, as Python's filters have it."""
    warnings.warn(
        f"{what} can't be run by ONNX Runtime ({error}), so that torch runs it, in twice the time",
        stacklevel=3,
    )


class FlatFeatures(nn.Module):
    """`features_of` as a tuple of tensors, for a graph's outputs."""

    def __init__(self, encoder: nn.Module, small_size: int | None) -> None:
        super().__init__()
        self.encoder, self.small_size = encoder, small_size

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        found = features_of(self.encoder, images, self.small_size)
        both = [found] if found.small is None else [found, found.small]
        return tuple(t for f in both for t in (f.pooled, f.patches) if t is not None)


def compiled(
    encoder: nn.Module,
    image_size: int,
    small_size: int | None,
    engine: str,
    device: str,
    n_images: int,
) -> "CompiledEncoder | None":
    """The encoder in ONNX Runtime where that is wanted, or worth it; None: torch runs it."""
    if not uses_onnx(engine, device, n_images):
        return None
    try:
        return CompiledEncoder(encoder, image_size, small_size)
    except ExportError as error:
        if engine == "onnx":
            raise ValueError(f"the engine onnx can't run this encoder: {error}") from error
        warn_of_fallback(f"the encoder {type(encoder).__name__}", error)
        return None


class CompiledEncoder:
    """Called with a few images, uint8 or float, as `features_of` is with an encoder."""

    def __init__(self, encoder: nn.Module, image_size: int, small_size: int | None) -> None:
        module = FlatFeatures(encoder, small_size)
        blank = torch.zeros(2, 3, image_size, image_size)
        tried = torch.rand(blank.shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            wanted = module.eval()(tried)
        self.step = len(wanted) // (1 if small_size is None else 2)  # outputs for each size
        names = [f"features_{k}" for k in range(len(wanted))]
        self.session = session_of(graph_of(module, blank, "images", names))
        outputs = self.session.run(None, {"images": tried.numpy()})
        for ours, theirs in zip(outputs, wanted, strict=True):
            apart = float((torch.from_numpy(ours) - theirs).abs().max())
            if apart > CLOSE * float(theirs.abs().max().clamp_min(1e-12)):
                raise ExportError(
                    f"{type(encoder).__name__} gives other features in ONNX Runtime than in torch; "
                    "use the engine torch"
                )

    def __call__(self, images: Tensor) -> Features:
        floats = as_floats(images, torch.device("cpu")).float().contiguous()
        outputs = self.session.run(None, {"images": floats.numpy()})
        tensors = [torch.from_numpy(x) for x in outputs]
        pairs = [tensors[i : i + self.step] for i in range(0, len(tensors), self.step)]
        each = [Features(pair[0], pair[1] if len(pair) == 2 else None) for pair in pairs]
        return each[0] if len(each) == 1 else replace(each[0], small=each[1])
