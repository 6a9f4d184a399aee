"""The state of Algorithm 1 as tensors and metadata."""

from dataclasses import asdict
from typing import Any

import torch

from ..storage.files import with_prefix, without_prefix
from .checkpoint import Content
from .descent import generator_from
from .tuner import Best, Record, TunerState


class TunerCodec:
    """θ, buffers, momentum, `a` with its moments, and the best of it all."""

    def pack(self, state: TunerState) -> Content:
        tensors = {
            **with_prefix("theta", state.theta),
            **with_prefix("buffers", state.buffers),
            **with_prefix("momentum", state.momentum),
            "a": state.a,
            "adam.mean": state.adam[0],
            "adam.square": state.adam[1],
            "generator": state.generator.get_state(),
        }
        metadata: dict[str, Any] = {
            "n_updates": state.n_updates,
            "warm_losses": state.warm_losses,
            "history": [asdict(r) for r in state.history],
            "final_losses": state.final_losses,
            "best": None,
        }
        if (best := state.best) is not None:
            tensors |= with_prefix("best.theta", best.theta)
            tensors |= with_prefix("best.buffers", best.buffers)
            tensors["best.a"] = best.a
            metadata["best"] = [best.iteration, best.loss, best.train_loss]
        return tensors, metadata

    def unpack(self, content: Content) -> TunerState:
        tensors, metadata = content
        best = None
        if metadata["best"] is not None:
            kinds = ("theta", "buffers")
            theta, buffers = (without_prefix(f"best.{kind}", tensors) for kind in kinds)
            iteration, loss, train_loss = metadata["best"]
            best = Best(iteration, loss, train_loss, theta, buffers, tensors["best.a"])
        return TunerState(
            theta=without_prefix("theta", tensors),
            buffers=without_prefix("buffers", tensors),
            momentum=without_prefix("momentum", tensors),
            a=tensors["a"],
            adam=(tensors["adam.mean"], tensors["adam.square"]),
            generator=generator_from(tensors["generator"]),
            n_updates=metadata["n_updates"],
            warm_losses=metadata["warm_losses"],
            history=[Record(**r) for r in metadata["history"]],
            best=best,
            final_losses=metadata["final_losses"],
        )

    def same_shapes(self, one: TunerState, other: TunerState) -> bool:
        return shapes(one) == shapes(other)


def shapes(state: TunerState) -> list[tuple[str, torch.Size]]:
    named = (*state.theta.items(), *state.buffers.items(), *state.momentum.items())
    steps = (("a", state.a), ("mean", state.adam[0]), ("square", state.adam[1]))
    return sorted((name, tensor.shape) for name, tensor in (*named, *steps))
