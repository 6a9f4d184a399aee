"""Score images with a file that `stssad export` wrote: onnxruntime, numpy and Pillow, nothing else.

python examples/onnx_inference.py bolt.onnx part1.png folder_of_parts
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def load(path: str) -> tuple[onnxruntime.InferenceSession, int]:
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has many classes of errors
        sys.exit(f"cannot read {path!r}: {str(error).splitlines()[0][:120]}; export it again")
    metadata = session.get_modelmeta().custom_metadata_map
    if "stssad" not in metadata:
        sys.exit(f"{path!r} was not written by `stssad export`; give a file that was")
    return session, int(metadata["image_size"])


def read(path: Path, size: int) -> np.ndarray:
    """As `stssad` reads 8-bit images: upright, RGB, stretched to a square."""
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
        return np.asarray(upright.resize((size, size), Image.Resampling.BILINEAR))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("give the model and what to score: model.onnx FILE_OR_FOLDER ...")
    session, size = load(sys.argv[1])
    print("image_path,pred_score,pred_label,p_value")
    for given in map(Path, sys.argv[2:]):
        for path in sorted(p for p in given.rglob("*") if p.is_file()) or [given]:
            try:
                score, label, p, anomaly_map = session.run(None, {"pixels": read(path, size)[None]})
                print(f"{path},{score[0]:.6f},{label[0]},{p[0]:.6g}")
            except (OSError, Image.DecompressionBombError) as error:  # also other files of a folder
                print(f"cannot read '{path}' as an image: {error}", file=sys.stderr)
