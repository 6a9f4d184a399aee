"""A start under way as one file, from which it goes on to the bit.

The tensors and, as JSON in the file's metadata, all else. One file, written aside and renamed:
there is a whole checkpoint or none.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from .storage import on_device, read_tensors_and_facts, with_prefix, without_prefix, write_tensors
from .tuner import Best, Record, TunerState


def write_checkpoint(path: Path, state: TunerState, fingerprint: str, with_theta: bool) -> None:
    """Keep the state of a start; `fingerprint` names the job that it belongs to.

    Without θ where it never changes: it is then that of the job's initial state.
    """
    tensors = {
        **with_prefix("theta", state.theta if with_theta else {}),
        **with_prefix("buffers", state.buffers if with_theta else {}),
        **with_prefix("momentum", state.momentum if with_theta else {}),
        "a": state.a,
        "adam.mean": state.adam[0],
        "adam.square": state.adam[1],
        "generator": state.generator.get_state(),
    }
    facts: dict[str, Any] = {
        "fingerprint": fingerprint,
        "n_updates": state.n_updates,
        "warm_losses": state.warm_losses,
        "history": [asdict(r) for r in state.history],
        "best": None,
    }
    if state.best is not None:
        best = state.best
        tensors |= {
            **with_prefix("best.theta", best.theta if with_theta else {}),
            **with_prefix("best.buffers", best.buffers if with_theta else {}),
            "best.a": best.a,
        }
        facts["best"] = [best.iteration, best.loss, best.train_loss]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, tensors, {"facts": json.dumps(facts)})


def read_checkpoint(path: Path, fingerprint: str, initial: TunerState) -> TunerState | None:
    """The state that was kept, or None if there is none; what it lacks is as it was initially."""
    if not path.is_file():
        return None
    try:
        tensors, facts = read_tensors_and_facts(path)
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged ({error}); delete it to begin that start anew"
        ) from error
    if facts["fingerprint"] != fingerprint:
        raise ValueError(
            f"{os.path.basename(path)} belongs to other pictures or settings than these; "
            "resume with the same ones, or begin anew with another --out"
        )
    tensors = on_device(tensors, initial.a.device)
    generator = torch.Generator()
    generator.set_state(tensors["generator"].cpu())
    return TunerState(
        theta=without_prefix("theta", tensors) or initial.theta,
        buffers=without_prefix("buffers", tensors) or initial.buffers,
        momentum=without_prefix("momentum", tensors) or initial.momentum,
        a=tensors["a"],
        adam=(tensors["adam.mean"], tensors["adam.square"]),
        generator=generator,
        n_updates=facts["n_updates"],
        warm_losses=facts["warm_losses"],
        history=[Record(**r) for r in facts["history"]],
        best=_best(facts["best"], tensors, initial),
    )


def _best(facts: list[Any] | None, tensors: dict[str, Tensor], initial: TunerState) -> Best | None:
    if facts is None:
        return None
    iteration, loss, train_loss = facts
    theta, buffers = (without_prefix(f"best.{kind}", tensors) for kind in ("theta", "buffers"))
    theta, buffers = theta or initial.theta, buffers or initial.buffers
    return Best(iteration, loss, train_loss, theta, buffers, tensors["best.a"])
