"""One function for each figure. They read saved results; two also need the data's images."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...augment.cutdiff import cutdiff
from ...augment.cutout import CutOut
from ...augment.cutpaste import CutPaste
from ...augment.learned import format_learned
from ...encoders.encoding import as_floats
from ...images.reading import Reading
from ...storage.files import read_tensors
from ...tuning.val_loss import mean_distance_loss
from ..testbeds import mvtec
from ..testbeds.synthetic import ASPECTS, SIZES, texture_crops
from ..testbeds.task_images import TaskImages
from .cell import Line, Store
from .tables import OURS
from .type_examples import EXAMPLES

SHOWN = 128  # pixels of images in figures


@dataclass(frozen=True)
class Sources:
    """Where figures get what they show."""

    results: Path
    data: Path | None
    preset: str = "cpu"
    category: str = "tile"  # of the gallery

    def lines(self, testbed: str) -> list[Line]:
        """Ours, transductive, with the preset as it is."""
        found = [
            line
            for line in Store(self.results).lines(testbed)
            if line.cell.method == OURS
            and line.cell.protocol == "transductive"
            and line.cell.preset == self.preset
            and not line.cell.changes
        ]
        if not found:
            raise ValueError(
                f"no results of {OURS} on {testbed} in {str(self.results)!r}; make them with: "
                f"stssad bench run {testbed} --methods {OURS}"
            )
        return found

    def images(self, category: str, defect: str) -> TaskImages:
        if self.data is None:
            raise FileNotFoundError(
                "this figure shows images of MVTec AD; name the folder that holds them with "
                "--data or STSSAD_DATA"
            )
        return mvtec.load(self.data, category, defect, Reading(SHOWN))


def pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            "figures need matplotlib; install it with: pip install 'stssad[bench]'"
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def demonstrative(sources: Sources) -> Any:
    """Learned against planted size and aspect, and the AUROC, for the 25 tasks (first seed)."""
    lines = {line.cell.task: line for line in sources.lines("demonstrative") if not line.cell.seed}
    panels: dict[str, npt.NDArray[np.float64]] = {}
    for name in ("size", "aspect", "AUROC"):
        panels[name] = np.full((len(SIZES), len(ASPECTS)), np.nan)
    for i, size in enumerate(SIZES):
        for j, aspect in enumerate(ASPECTS):
            if line := lines.get(f"{size:g}/{aspect:g}"):
                panels["size"][i, j] = line.learned["size"]
                panels["aspect"][i, j] = line.learned["aspect"]
                panels["AUROC"][i, j] = line.auc
    figure, axes = pyplot().subplots(1, 3, figsize=(12, 3.9))
    ranges = {"size": (0.005, 0.32), "aspect": (0.25, 4.0), "AUROC": (0.5, 1.0)}
    for axis, (name, values) in zip(axes, panels.items(), strict=True):
        heatmap(axis, values, ranges[name], logarithmic=name != "AUROC")
        axis.set(title=f"learned {name}" if name != "AUROC" else name, xlabel="planted aspect")
        axis.set_xticks(range(len(ASPECTS)), [f"{x:g}" for x in ASPECTS])
        axis.set_yticks(range(len(SIZES)), [f"{x:g}" for x in SIZES])
    axes[0].set_ylabel("planted size")
    return figure


def heatmap(
    axis: Any, values: npt.NDArray[np.float64], limits: tuple[float, float], logarithmic: bool
) -> None:
    from matplotlib.colors import LogNorm, Normalize

    norm = (LogNorm if logarithmic else Normalize)(*limits, clip=True)
    axis.imshow(values, norm=norm, cmap="viridis", origin="lower")
    for (i, j), value in np.ndenumerate(values):
        if not math.isnan(value):
            dark = float(norm(value)) < 0.6
            axis.text(
                j,
                i,
                f"{value:.3g}",
                ha="center",
                va="center",
                fontsize=8,
                color="white" if dark else "black",
            )


def trajectories(sources: Sources) -> Any:
    """The size during tuning for five planted sizes: mean and deviation over the seeds."""
    lines = [line for line in sources.lines("demonstrative") if line.cell.task.endswith("/1")]
    figure, axes = pyplot().subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for axis, initial in zip(axes, (0.001, 0.01), strict=True):
        most = 0
        for k, size in enumerate(SIZES):
            paths = [
                start["path"]
                for line in lines
                if line.cell.task == f"{size:g}/1"
                for start in line.starts
                if math.isclose(start["initial"]["size"], initial, rel_tol=0.01)
            ]
            if not paths:
                continue
            shortest = min(map(len, paths))
            logs = np.log([path[:shortest] for path in paths])
            mean, deviation = logs.mean(0), logs.std(0)
            steps, most = np.arange(shortest), max(most, len(paths))
            axis.plot(steps, np.exp(mean), color=f"C{k}", label=f"{size:g}")
            axis.fill_between(
                steps, np.exp(mean - deviation), np.exp(mean + deviation), color=f"C{k}", alpha=0.2
            )
            axis.axhline(size, color=f"C{k}", linestyle=":", linewidth=1)
        axis.set(yscale="log", xlabel="iteration")
        axis.set_title(f"from {initial:g} ({most} seeds)")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("patch size (dotted: planted)")
    axes[1].legend(title="planted", fontsize=8)
    return figure


def tsne(sources: Sources) -> Any:
    """Embeddings of training, augmented and pool images of one task, as a map."""
    from sklearn.manifold import TSNE

    path = sources.results / "embeddings.safetensors"
    if not path.is_file():
        raise FileNotFoundError(
            f"no {path.name} in {str(sources.results)!r}; make it with: stssad bench embed"
        )
    saved = read_tensors(path)
    Z = torch.cat([saved[name].float() for name in ("training", "augmented", "pool")]).numpy()
    places = TSNE(random_state=0, init="pca", perplexity=30).fit_transform(Z)
    labels = np.concatenate(
        [
            np.zeros(len(saved["training"])),
            np.ones(len(saved["augmented"])),
            2 + saved["pool_labels"],
        ]
    )
    figure, axis = pyplot().subplots(figsize=(5.5, 4.6))
    kinds = ("training", "augmented (learned)", "pool: normal", "pool: planted")
    for k, (kind, marker) in enumerate(zip(kinds, "o^xs", strict=True)):
        rows = places[labels == k]
        axis.scatter(*rows.T, s=14, marker=marker, alpha=0.7, label=kind)
    axis.set(xticks=[], yticks=[])
    axis.legend(fontsize=8)
    return figure


def cutdiff_parameters(learned: dict[str, float]) -> Tensor:
    """`a` from what `describe` says of it."""
    angle = math.radians(learned["angle_deg"])
    return torch.tensor([math.log(learned["size"]), math.log(learned["aspect"]) / 2, angle])


def gallery(sources: Sources) -> Any:
    """For each defect of a category: true anomalies, and what was learned from the pool."""
    category = sources.category
    lines = {line.cell.task: line for line in sources.lines(category) if line.cell.seed == 0}
    return beside_anomalies(sources, [(category, task) for task in lines], [*lines.values()])


def limitation(sources: Sources) -> Any:
    """What CutDiff learned where it can't do what the defect does: oil is bright, thread thin."""
    tasks, lines = [], []
    for category, defect in (("tile", "oil"), ("carpet", "thread")):
        try:
            found = [line for line in sources.lines(category) if line.cell.task == defect]
        except ValueError:
            continue
        if found:
            tasks.append((category, defect))
            lines.append(found[0])
    if not lines:
        raise ValueError(
            "no results of tile/oil or carpet/thread; make them with: stssad bench run"
        )
    return beside_anomalies(sources, tasks, lines)


def beside_anomalies(sources: Sources, tasks: list[tuple[str, str]], lines: list[Line]) -> Any:
    """A row for each task: three anomalies, three normal images with the learned patch."""
    figure, axes = pyplot().subplots(len(tasks), 6, figsize=(9.6, 1.75 * len(tasks)), squeeze=False)
    for row, (category, defect), line in zip(axes, tasks, lines, strict=True):
        parts = sources.images(category, defect)
        generator = torch.Generator().manual_seed(0)
        normal = as_floats(parts.train[:3], torch.device("cpu"))
        centers = 0.2 + 0.6 * torch.rand(3, 2, generator=generator)
        augmented = cutdiff(normal, cutdiff_parameters(line.learned), centers)
        shown = torch.cat([as_floats(parts.anomalous[:3], torch.device("cpu")), augmented])
        show(row, shown)
        row[0].set_title(f"{category}, {defect.replace('_', ' ')}", fontsize=8, loc="left")
        title = f"learned: area {100 * line.learned['area']:.3g} %, AUROC {line.auc:.2f}"
        row[3].set_title(title, fontsize=8, loc="left")
    return figure


def show(axes: Sequence[Any], images: Tensor) -> None:
    for axis, image in zip(axes, images, strict=True):
        axis.imshow(image.permute(1, 2, 0).numpy(), vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])


def augmentations(sources: Sources) -> Any:
    """CutPaste, CutOut, and CutDiff with different hyperparameters, on one texture image."""
    areas = (0.01, 0.04, 0.16, 0.64)
    image = texture_crops("brick", 1, SHOWN, torch.Generator().manual_seed(1))
    rows: dict[str, Callable[[float], Tensor]] = {
        "CutPaste": lambda area: CutPaste()(
            image, torch.tensor([math.log(area), 0.0]), torch.tensor([[0.5, 0.5, 0.2, 0.8]])
        ),
        "CutOut": lambda area: CutOut()(
            image, torch.tensor([math.log(area), 0.0]), torch.tensor([[0.5, 0.5]])
        ),
    }
    for aspect, degrees in ((1.0, 0.0), (2.0, 0.0), (2.0, 45.0)):
        a_rest = [math.log(aspect) / 2, math.radians(degrees)]
        rows[f"CutDiff {aspect:g}, {degrees:g}°"] = lambda area, a_rest=a_rest: cutdiff(
            image, torch.tensor([math.log(area), *a_rest]), torch.tensor([[0.5, 0.5]])
        )  # type: ignore[misc]
    figure, axes = pyplot().subplots(len(rows), len(areas), figsize=(6.4, 7.6))
    for row, (name, make) in zip(axes, rows.items(), strict=True):
        show(row, torch.cat([make(area) for area in areas]))
        row[0].set_ylabel(name, fontsize=8)
    for axis, area in zip(axes[0], areas, strict=True):
        axis.set_title(f"size {area:g}", fontsize=8)
    return figure


def types(sources: Sources) -> Any:
    """What the pretrained method tunes: each type at four `a`, on a texture with some colour."""
    grey = texture_crops("gravel", 1, SHOWN, torch.Generator().manual_seed(3))
    image = (grey * torch.tensor([1.0, 0.93, 0.82])[:, None, None]).clamp(0, 1)
    figure, axes = pyplot().subplots(len(EXAMPLES), 5, figsize=(7.6, 7.8))
    for row, (type_, noise, values) in zip(axes, EXAMPLES, strict=True):
        augmented = [type_(image, torch.tensor(a), torch.tensor([noise])) for a in values]
        show(row, torch.cat([image, *augmented]))
        row[0].set_ylabel(type(type_).__name__, fontsize=9)
        for axis, a in zip(row[1:], values, strict=True):
            values_text = format_learned(type_.describe(torch.tensor(a))).split(", ")
            shown = [x for x in values_text if not x.startswith(("aspect", "angle"))]
            axis.set_title("\n".join(shown), fontsize=6.5)
    return figure


def landscape(sources: Sources) -> Any:
    """L_val around perfect alignment (Lemma 2), for embeddings of one dimension.

    Z_trn = {0}, Z_aug = {1}, and the pool {0 + u1, 1 + u2}.
    """
    axis_values = torch.linspace(-0.4, 0.4, 41)
    u = torch.stack(torch.meshgrid(axis_values, axis_values, indexing="ij"), dim=-1).reshape(-1, 2)
    u.requires_grad_()
    losses = torch.stack(
        [
            mean_distance_loss(
                torch.zeros(1, 1), torch.ones(1, 1), torch.stack([x, 1 + y])[:, None]
            )
            for x, y in u
        ]
    )
    (slope,) = torch.autograd.grad(losses.sum(), u)
    grid = losses.detach().reshape(41, 41).numpy()
    arrows = -slope.reshape(41, 41, 2).numpy()[::5, ::5]
    figure, axis = pyplot().subplots(figsize=(5.2, 4.2))
    places = axis_values.numpy()
    mesh = axis.pcolormesh(places, places, grid.T, cmap="viridis", shading="nearest")
    ticks = places[::5]
    axis.quiver(ticks, ticks, arrows[..., 0].T, arrows[..., 1].T, color="white")
    axis.plot(0, 0, "r*", markersize=12)
    axis.set(xlabel="$u_1$", ylabel="$u_2$")
    figure.colorbar(mesh, label="L_val")
    return figure


def times(sources: Sources) -> Any:
    """The running time of the four steps against layers and images (benchmarks/complexity.py)."""
    path = sources.results / "complexity.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"no {path.name} in {str(sources.results)!r}; make it with: "
            "python benchmarks/complexity.py"
        )
    saved = json.loads(path.read_text())
    figure, axes = pyplot().subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axis, name in zip(axes, ("layers", "images"), strict=True):
        xs = saved[name]["at"]
        means, deviations = (np.array(saved[name][k]) for k in ("mean", "deviation"))
        for k in range(4):
            exponent = saved[name]["exponents"][k]
            axis.errorbar(
                xs,
                means[:, k],
                deviations[:, k],
                marker="o",
                ms=4,
                label=f"step {k + 1}: exponent {exponent:.2f}",
            )
        axis.set(xscale="log", yscale="log", xlabel=f"number of {name}")
        axis.set_xticks(xs, [str(x) for x in xs], minor=False)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    axes[0].set_ylabel(f"seconds, mean and deviation of {saved['runs']} runs")
    return figure


FIGURES: dict[str, Callable[[Sources], Any]] = {
    "demonstrative": demonstrative,
    "trajectories": trajectories,
    "tsne": tsne,
    "gallery": gallery,
    "augmentations": augmentations,
    "types": types,
    "limitation": limitation,
    "landscape": landscape,
    "times": times,
}


def write_figure(name: str, sources: Sources, folder: Path) -> Path:
    """Draw one figure into a PNG file of its name."""
    if name not in FIGURES:
        raise ValueError(f"unknown figure {name!r}; use one of {', '.join(FIGURES)}")
    figure = FIGURES[name](sources)
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=110)
    pyplot().close(figure)
    return path
