"""Score images with a file that `stssad export` wrote: onnxruntime, numpy and Pillow, nothing else.

python examples/onnx_inference.py bolt.onnx part1.png part2.png
"""

import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def load(path: str) -> tuple[onnxruntime.InferenceSession, int]:
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class for each kind of damage
        sys.exit(f"cannot read {path!r}: {str(error).splitlines()[0][:120]}; export it again")
    metadata = session.get_modelmeta().custom_metadata_map
    if "stssad" not in metadata:
        sys.exit(f"{path!r} was not written by `stssad export`; give a file that was")
    return session, int(metadata["image_size"])


def read(path: str, size: int) -> np.ndarray:
    """As `stssad` reads 8-bit images: upright, RGB, stretched to a square."""
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
        return np.asarray(upright.resize((size, size), Image.Resampling.BILINEAR))


if __name__ == "__main__":
    session, size = load(sys.argv[1])
    print("image_path,pred_score,pred_label,p_value")
    for path in sys.argv[2:]:
        score, label, p, heat = session.run(None, {"pixels": read(path, size)[None]})
        print(f"{path},{score[0]:.6f},{label[0]},{p[0]:.6g}")
