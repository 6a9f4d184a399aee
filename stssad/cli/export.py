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

    from ..deploy.export import export_onnx
    from ..runs.run import Run

    opened = Run.open(run)
    digest = hashlib.sha256(opened.files.weights.read_bytes()).hexdigest()
    metadata = {"run": opened.metadata["title"], "run_digest": digest}
    export_onnx(opened.model(), out, metadata)
    typer.echo(f"model: {out} ({out.stat().st_size / 1e6:.0f} MB)")
