"""What the page shows beyond the model itself: pictures, and a map of the embeddings.

Kept in report.safetensors, so that the page can be rebuilt where the pictures are no more.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..heatmaps import overlays
from ..images import UnreadableError, read_picture
from ..model import STSSAD
from ..settings import Reading
from ..storage import read_tensors_and_facts, write_tensors

THUMBNAIL = 160  # pixels, of pictures that come from files
N_TOP, N_BOTTOM, N_EXAMPLES, N_MAPPED = 40, 10, 6, 150
KINDS = ("training", "augmented", "pool")


@dataclass(frozen=True)
class Material:
    """Pictures are uint8 (n, 3, h, h); `map` (n, 2) goes with `map_kind` (n,), indices of KINDS."""

    normal: Tensor
    augmented: Tensor
    ranked: Tensor  # the pool's most anomalous pictures, then its least
    heat: Tensor  # the same with their heatmaps over them; none (0, ...) without maps
    ranked_index: list[int]  # their places in the pool
    names: list[str]  # of all pool pictures
    map: Tensor
    map_kind: Tensor

    def save(self, folder: Path) -> None:
        tensors = {
            "normal": self.normal,
            "augmented": self.augmented,
            "ranked": self.ranked,
            "heat": self.heat,
            "map": self.map,
            "map_kind": self.map_kind,
        }
        facts = {"ranked_index": self.ranked_index, "names": self.names}
        write_tensors(folder / "report.safetensors", tensors, {"facts": json.dumps(facts)})

    @staticmethod
    def load(folder: Path) -> "Material":
        path = folder / "report.safetensors"
        if not path.is_file():
            raise FileNotFoundError(
                f"no report.safetensors in {str(folder)!r}; give a folder that `stssad fit` wrote"
            )
        tensors, facts = read_tensors_and_facts(path)
        return Material(**{**tensors, **facts})


def gather(
    model: STSSAD,
    train: Tensor,
    pool: Tensor,
    train_paths: list[Path] | None = None,
    pool_paths: list[Path] | None = None,
    pool_folder: Path = Path("."),
) -> Material:
    """From a fitted model and its pictures; with paths, pictures are shown larger than learned."""
    order = np.argsort(-model.decision_scores_, kind="stable")
    n_bottom = min(N_BOTTOM, max(0, len(order) - N_TOP))
    ranked = np.concatenate([order[:N_TOP], order[len(order) - n_bottom :]]).tolist()
    examples = model.train_index_[:N_EXAMPLES].tolist()
    normal = thumbnails(model, train, train_paths, examples)
    generator = torch.Generator().manual_seed(model.seed)
    a = torch.tensor(model.candidates_[model.chosen_].a)
    augmented = augment(model, normal, a, generator)
    map_, kinds = embedding_map(model, train[model.train_index_], pool, a, generator)
    if pool_paths is None:
        names = [f"picture {i}" for i in range(len(pool))]
    else:
        names = [path.relative_to(pool_folder).as_posix() for path in pool_paths]
    pictures = thumbnails(model, pool, pool_paths, ranked)
    return Material(
        normal=normal,
        augmented=augmented,
        ranked=pictures,
        heat=heat_over(model, pictures, pool[ranked]),
        ranked_index=ranked,
        names=names,
        map=map_,
        map_kind=kinds,
    )


def thumbnails(model: STSSAD, images: Tensor, paths: list[Path] | None, index: list[int]) -> Tensor:
    """uint8 pictures, from their files where possible."""
    if paths is not None:
        reading = Reading(max(THUMBNAIL, model.image_size_), model.settings_.aspect)
        try:
            pictures = np.stack([read_picture(paths[i], reading) for i in index])
            return torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()
        except UnreadableError:  # a file has gone since it was read: show what was learned from
            pass
    chosen = images[index]
    return chosen if chosen.dtype == torch.uint8 else (chosen * 255).round().to(torch.uint8)


def heat_over(model: STSSAD, pictures: Tensor, images: Tensor) -> Tensor:
    """Pictures with their heatmaps; `images` are the same in the model's size."""
    if model.heat_ is None:
        return pictures[:0]
    places = model.place_distances(images)
    assert places is not None
    return overlays(pictures, model.heat_(places))


def augment(model: STSSAD, images: Tensor, a: Tensor, generator: torch.Generator) -> Tensor:
    """uint8 pictures with the learned augmentation."""
    noise = model.augmentation_.draw(len(images), generator)
    out = model.augmentation_(images.float() / 255, a, noise)
    return (out * 255).round().to(torch.uint8)


def embedding_map(
    model: STSSAD, train: Tensor, pool: Tensor, a: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Embeddings of some training, augmented and pool pictures in the plane, and which is which."""
    some = torch.randperm(len(train), generator=generator)[:N_MAPPED]
    others = torch.randperm(len(pool), generator=generator)[:N_MAPPED]
    normal = train[some]
    normal = normal.float() / 255 if normal.dtype == torch.uint8 else normal
    noise = model.augmentation_.draw(len(normal), generator)
    sets = [normal, model.augmentation_(normal, a, noise), pool[others]]
    Z = [model.embed(images).numpy() for images in sets]
    kinds = np.concatenate([np.full(len(z), k) for k, z in enumerate(Z)])
    return torch.from_numpy(in_the_plane(np.concatenate(Z))), torch.from_numpy(kinds)


def in_the_plane(Z: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """t-SNE, the same every time; principal components where there are too few points for it."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if len(Z) < 20:
        plane: npt.NDArray[np.float32] = PCA(2, random_state=0).fit_transform(Z)
        return plane
    perplexity = min(30, (len(Z) - 1) // 3)
    tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=0, method="exact")
    plane = tsne.fit_transform(Z).astype(np.float32)
    return plane
