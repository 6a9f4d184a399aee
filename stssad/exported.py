"""A fitted model as one ONNX file: from pixels to score, label, p-value and anomaly map.

Fitted arrays become constants of the graph. Triangular solves, which ONNX doesn't have, become
products with the inverse; everything after the encoder stays in the precision that it has here.
"""

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .encoders.compiled import graph_of, shrinking
from .encoders.patches import as_rows, patches_of
from .scoring.anomaly_map import upsampled
from .scoring.calibration import CalibratedSum, Likelihood, logs
from .scoring.examples import WEIGHT, directions, largest
from .scoring.gaussian import GaussianDensity, ImageGaussian
from .scoring.memory_bank import MemoryBank, highest
from .scoring.nuisance import without
from .storage import replacing_bytes
from .version import __version__

if TYPE_CHECKING:
    from .model import STSSAD

OUTPUTS = ("pred_score", "pred_label", "p_value", "anomaly_map")


class ExportedGaussian(nn.Module):
    """`GaussianDensity.distance`, by products alone."""

    def __init__(self, density: GaussianDensity) -> None:
        super().__init__()
        whitening = density.whitening
        assert whitening.mean is not None and whitening.cholesky is not None
        eye = torch.eye(len(whitening.cholesky), dtype=torch.float64)
        inverse = torch.linalg.solve_triangular(whitening.cholesky.cpu(), eye, upper=False)
        self.mean: Tensor
        self.transform: Tensor
        self.direction: Tensor
        self.register_buffer("mean", whitening.mean.cpu())
        # rows @ transform: whitened, less the directions of light
        self.register_buffer("transform", without(inverse.T, whitening.nuisance.cpu()))
        shift = torch.zeros(len(eye)) if density.shift is None else density.shift.cpu()
        u = copy.deepcopy(whitening).cpu().shift(shift.double())
        self.register_buffer("direction", u / torch.linalg.vector_norm(u).clamp_min(1e-300))
        self.weight = float(density.weight)
        self.defects: Tensor | None
        self.good: Tensor | None
        for name in ("defects", "good"):
            known = getattr(density.examples, name)
            lie = None if known is None else directions(copy.deepcopy(whitening).cpu()(known.cpu()))
            self.register_buffer(name, lie)

    def forward(self, Z: Tensor) -> Tensor:
        w = (Z.double() - self.mean) @ self.transform
        along = (w @ self.direction[:, None])[:, 0].clamp_min(0)
        squares = (w * w).sum(dim=1)
        distance = (squares + self.weight * along * along) / 2
        if self.defects is None:
            return distance
        u = w / squares.sqrt().clamp_min(1e-300)[:, None]
        more = largest(u @ self.defects.T)
        if self.good is not None:
            more = (more - largest(u @ self.good.T)).clamp_min(0)
        return distance * (1 + WEIGHT * more)


class ExportedBank(nn.Module):
    """`MemoryBank`, all patches at once."""

    def __init__(self, part: MemoryBank) -> None:
        super().__init__()
        self.n_highest = part.n_highest
        self.bank: Tensor
        self.nuisance: Tensor
        self.squares: Tensor
        self.register_buffer("bank", part.bank.cpu())
        self.register_buffer("nuisance", part.nuisance.cpu())
        self.register_buffer("squares", part.bank.cpu().square().sum(1))

    def forward(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        rows = without(as_rows(patches), self.nuisance)
        nearest = (self.squares - 2 * rows @ self.bank.T).argmin(dim=1)
        apart = rows - self.bank[nearest]
        distances = (apart * apart).sum(dim=1).sqrt()
        maps = distances.reshape(-1, patches.shape[2], patches.shape[3])
        return highest(maps, self.n_highest), maps


def growing(side: int, size: int) -> Tensor:
    """(m, h): what `upsampled` does to a map, rows and columns alike, as a product from each side.

    Interpolation and blur act on rows and on columns by themselves, and leave what is constant.
    """
    rows = torch.eye(side)[:, :, None].expand(side, side, side)
    return upsampled(rows.contiguous(), size)[:, :, 0].T.contiguous()


class ExportedModel(nn.Module):
    """Pixels (n, m, m, 3) in 0..255 to what `stssad score` writes; the map is (n, m, m) in [0, 1],
    or empty where the model has none. `as_distances`: the map as the memory bank has it."""

    def __init__(self, model: "STSSAD", as_distances: bool = False) -> None:
        super().__init__()
        self.as_distances = as_distances
        self.encoder = copy.deepcopy(model.model_.encoder).cpu()
        self.threshold, self.image_size = float(model.threshold_), model.image_size_
        self.scale, scorer = model.map_scale_, model.model_.scorer
        normal = torch.from_numpy(model.normal_scores_).double()
        self.normal: Tensor
        self.grown: Tensor
        self.shrinks: Tensor
        self.register_buffer("normal", normal)
        self.bank: ExportedBank | None = None
        self.small_bank: ExportedBank | None = None
        if isinstance(scorer, Likelihood):
            self.gaussian, self.sum = ExportedGaussian(scorer.density), None
            self.least = scorer.density.least
        else:
            assert isinstance(scorer, CalibratedSum)
            gaussian, *banks = scorer.parts
            check_exportable(gaussian, banks)
            self.gaussian = ExportedGaussian(gaussian.density)  # type: ignore[arg-type]
            self.sum = copy.deepcopy(scorer).cpu()
            for part in banks:
                assert isinstance(part, MemoryBank)
                if part.of_small:
                    self.small_bank = ExportedBank(part)
                else:
                    self.bank = ExportedBank(part)
        if self.bank is not None:
            blank = torch.zeros(1, 3, self.image_size, self.image_size)
            patches = patches_of(self.encoder.features(blank))  # type: ignore[operator]
            assert patches is not None
            self.register_buffer("grown", growing(patches.shape[-1], self.image_size))
        if self.small_bank is not None:
            assert model.model_.small_size is not None
            self.register_buffer("shrinks", shrinking(self.image_size, model.model_.small_size))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        images = pixels.permute(0, 3, 1, 2).float() / 255
        maps = self.encoder.features(images)  # type: ignore[operator]
        distance = self.gaussian(self.encoder.pooled(maps))  # type: ignore[operator]
        shown = pixels[:, :0, :0, 0].float()
        if self.sum is None:
            score = distance + self.least
        else:
            parts = [distance]
            if self.bank is not None:
                of_patches, distances = self.bank(patches_of(maps))
                parts.append(of_patches)
                assert self.scale is not None
                shown = distances
                if not self.as_distances:
                    shown = self.grown @ self.scale(distances) @ self.grown.T
            if self.small_bank is not None:
                small = self.shrinks @ images @ self.shrinks.T
                parts.append(self.small_bank(patches_of(self.encoder.features(small)))[0])  # type: ignore[operator]
            zs = [(logs(p) - c) / s for p, c, s in zip(parts, self.sum.centers, self.sum.spreads)]  # noqa: B905
            score = (torch.stack(zs).sum(0) - self.sum.total[0]) / self.sum.total[1]
        n_above = (self.normal[None, :] >= score[:, None]).double().sum(dim=1)
        p_value = (1 + n_above) / (1 + len(self.normal))
        return score, (score > self.threshold).long(), p_value, shown


def check_exportable(gaussian: nn.Module, banks: list[nn.Module]) -> None:
    """The default's parts, or the first of them."""
    known = all(isinstance(part, MemoryBank) for part in banks)
    sizes = [part.of_small for part in banks if isinstance(part, MemoryBank)]
    if not isinstance(gaussian, ImageGaussian) or not known or sizes not in ([], [0], [0, 1]):
        names = ", ".join(type(part).__name__ for part in (gaussian, *banks))
        raise ValueError(
            f"parts {names} can't be exported; ImageGaussian and MemoryBank, the default, can"
        )


def export_onnx(model: "STSSAD", path: Path, facts: dict[str, Any]) -> None:
    """Write the file, with its metadata; `facts` are words about the run."""
    import onnx

    graph = onnx.load_from_string(graph_of_model(model))
    metadata = {
        "stssad": __version__,
        "image_size": str(model.image_size_),
        "aspect": model.reading_.aspect,
        "white_level": str(model.reading_.white_level or ""),
        "threshold": repr(float(model.threshold_)),
        "false_alarms": repr(float(model.false_alarms_)),
        "class_names": json.dumps(["normal", "anomaly"]),
        "method": model.method,
        **{name: str(value) for name, value in facts.items()},
    }
    onnx.helper.set_model_props(graph, metadata)
    onnx.checker.check_model(graph)
    with replacing_bytes(path) as file:
        file.write(graph.SerializeToString())


def graph_of_model(model: "STSSAD", as_distances: bool = False) -> bytes:
    """The ONNX graph, any number of images at a time."""
    size = model.image_size_
    pixels = torch.zeros(2, size, size, 3, dtype=torch.uint8)
    return graph_of(ExportedModel(model, as_distances), pixels, "pixels", list(OUTPUTS))
