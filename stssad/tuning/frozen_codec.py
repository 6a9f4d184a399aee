"""The state of a restart that learns nothing but `a`, as tensors and metadata."""

from dataclasses import asdict
from typing import Any

from .checkpoint import Content
from .descent import generator_from
from .frozen_tuner import FrozenBest, FrozenRecord, FrozenState


class FrozenCodec:
    """`a` with its moments, the generator, history, and the best `a`."""

    def pack(self, state: FrozenState) -> Content:
        tensors = {
            "a": state.a,
            "adam.mean": state.adam[0],
            "adam.square": state.adam[1],
            "generator": state.generator.get_state(),
        }
        metadata: dict[str, Any] = {"history": [asdict(r) for r in state.history], "best": None}
        if (best := state.best) is not None:
            tensors["best.a"] = best.a
            metadata["best"] = [best.iteration, best.loss]
        return tensors, metadata

    def unpack(self, content: Content) -> FrozenState:
        tensors, metadata = content
        best = None
        if metadata["best"] is not None:
            iteration, loss = metadata["best"]
            best = FrozenBest(iteration, loss, tensors["best.a"])
        return FrozenState(
            a=tensors["a"],
            adam=(tensors["adam.mean"], tensors["adam.square"]),
            generator=generator_from(tensors["generator"]),
            history=[FrozenRecord(**r) for r in metadata["history"]],
            best=best,
        )

    def same_shapes(self, one: FrozenState, other: FrozenState) -> bool:
        return one.a.shape == other.a.shape
