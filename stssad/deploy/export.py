"""A fitted model as one ONNX file: from pixels to score, label, p-value and anomaly map.

The graph is the model's own forward, with what `stssad score` makes of a score after it.
"""

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..encoders.engine import graph_of
from ..scoring.anomaly_map import upsampled
from ..storage.files import replacing_bytes
from ..version import __version__

if TYPE_CHECKING:
    from ..model import STSSAD

OUTPUTS = ["pred_score", "pred_label", "p_value", "anomaly_map"]


def growing(side: int, size: int) -> Tensor:
    """(m, h): what `upsampled` does to a map, rows and columns alike, as a product from each side.

    Interpolation and blur act on rows and on columns by themselves, and leave what is constant.
    """
    rows = torch.eye(side)[:, :, None].expand(side, side, side)
    return upsampled(rows.contiguous(), size)[:, :, 0].T.contiguous()


class ExportedModel(nn.Module):
    """Pixels (n, m, m, 3) in 0..255 to what `stssad score` writes; the map is (n, m, m) in [0, 1],
    or empty where the model has none."""

    def __init__(self, model: "STSSAD") -> None:
        super().__init__()
        self.model = copy.deepcopy(model.model_).cpu()
        self.threshold, self.scale = float(model.threshold_), model.map_scale_
        self.normal: Tensor
        self.grown: Tensor
        self.tail = model.tail_
        self.register_buffer("normal", torch.from_numpy(model.normal_scores_).double())
        size = model.image_size_
        maps = self.model(torch.zeros(1, 3, size, size)).maps
        if maps is not None:
            self.register_buffer("grown", growing(maps.shape[-1], size))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        scores = self.model(pixels.permute(0, 3, 1, 2))
        score = scores.scores
        p_value = self.p_values(score)
        if scores.maps is None or self.scale is None:
            shown = pixels[:, :0, :0, 0].float()
        else:
            shown = self.grown @ self.scale(scores.maps) @ self.grown.T
        return score, (score > self.threshold).long(), p_value, shown

    def p_values(self, score: Tensor) -> Tensor:
        """As `NormalTail.p_values`, in operations that ONNX has."""
        tail, n = self.tail, len(self.normal)
        counted = (1 + (self.normal[None, :] >= score[:, None]).double().sum(dim=1)) / (1 + n)
        if tail.scale == 0:
            return counted
        excess = score - tail.start
        power = (1 + excess.clamp_min(0) / (tail.scale * tail.k)) ** -tail.k
        return torch.where(excess > 0, tail.share * power, counted)


def export_onnx(model: "STSSAD", path: Path, metadata: dict[str, Any]) -> None:
    """Write the file, with its metadata; `metadata` are texts about the run."""
    import onnx

    size = model.image_size_
    pixels = torch.zeros(2, size, size, 3, dtype=torch.uint8)
    graph = onnx.load_from_string(graph_of(ExportedModel(model), pixels, "pixels", OUTPUTS))
    properties = {
        "stssad": __version__,
        "image_size": str(size),
        "aspect": model.reading_.aspect,
        "white_level": str(model.reading_.white_level or ""),
        "threshold": repr(float(model.threshold_)),
        "false_alarms": repr(float(model.false_alarms_)),
        "class_names": json.dumps(["normal", "anomaly"]),
        "method": model.method,
        **{name: str(value) for name, value in metadata.items()},
    }
    onnx.helper.set_model_props(graph, properties)
    onnx.checker.check_model(graph)
    with replacing_bytes(path) as file:
        file.write(graph.SerializeToString())
