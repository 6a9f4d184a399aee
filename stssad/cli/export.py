"""`stssad export`: a run to one ONNX file."""

from pathlib import Path
from typing import Annotated

import typer

from .console import FalseAlarms, FalseDiscoveries, HowSensitive, choose_decision


def command(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
    out: Annotated[Path, typer.Option(help="File to write, such as bolt.onnx.")],
    sensitivity: HowSensitive = None,
    false_alarms: FalseAlarms = None,
    false_discoveries: FalseDiscoveries = None,
) -> None:
    """Write a run's model as one ONNX file, from pixels to score, label, p-value and map.

    Its labels are by the run's threshold for new images, or by the one that is asked for: with
    --false-discoveries the one that keeps this rate in the pool.
    """
    import hashlib

    from ..deploy.export import export_onnx
    from ..runs.run import Run

    asked = choose_decision(sensitivity, false_alarms, false_discoveries)
    opened = Run.open(run)
    digest = hashlib.sha256(opened.files.weights.read_bytes()).hexdigest()
    metadata = {"run": opened.metadata["title"], "run_digest": digest}
    model = opened.model()
    if asked is not None and sensitivity is not None:
        model.set_threshold(asked.false_alarms)
    elif asked is not None:
        model.set_threshold(asked.false_alarms, None, asked.false_discoveries)
    export_onnx(model, out, metadata)
    typer.echo(f"model: {out} ({out.stat().st_size / 1e6:.0f} MB)")
