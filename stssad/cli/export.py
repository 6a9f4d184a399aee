"""`stssad export`: a run to one ONNX file."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(help="Folder that `stssad fit` wrote.")],
    out: Annotated[Path, typer.Option(help="File to write, such as bolt.onnx.")],
) -> None:
    """Write a run's model as one ONNX file, from pixels to score, label, p-value and map."""
    import hashlib

    from ..exported import export_onnx
    from ..run import Run

    opened = Run.open(run)
    digest = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    facts = {"run": opened.metadata["title"], "run_digest": digest}
    export_onnx(opened.model(), out, facts)
    typer.echo(f"model: {out} ({out.stat().st_size / 1e6:.0f} MB)")
