"""What the page shows beyond the model itself: images, and a map of the embeddings.

Kept in report.safetensors, so that the page can be rebuilt where the images are no more.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from ..encoders.encoding import as_floats, embed_all
from ..heatmaps import overlays
from ..images import UnreadableError, read_image
from ..model import STSSAD
from ..run import ADVICE
from ..settings import Reading
from ..storage import intact, read_tensors_and_metadata, write_tensors

THUMBNAIL = 160  # pixels, of images that come from files
N_TOP, N_BOTTOM, N_EXAMPLES, N_MAPPED = 40, 10, 6, 150
KINDS = ("training", "augmented", "pool")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Material:
    """Images are uint8 (n, 3, h, h); `plane` (n, 2) goes with `plane_kind` (n,), of KINDS."""

    normal: Tensor
    augmented: Tensor
    ranked: Tensor  # the pool's highest-scoring images, then its lowest
    heatmaps: Tensor  # of the same; none (0, ...) without anomaly maps
    ranked_index: list[int]  # their numbers in the pool
    names: list[str]  # of all pool images
    plane: Tensor
    plane_kind: Tensor

    def save(self, folder: Path) -> None:
        names = ("normal", "augmented", "ranked", "heatmaps", "plane", "plane_kind")
        tensors = {name: getattr(self, name) for name in names}
        metadata = {"ranked_index": self.ranked_index, "names": self.names}
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / "report.safetensors", tensors, metadata)

    @staticmethod
    def load(folder: Path) -> "Material":
        path = folder / "report.safetensors"
        if not path.is_file():
            raise FileNotFoundError(
                f"no report.safetensors in {str(folder)!r}; give a folder that `stssad fit` wrote"
            )
        tensors, metadata = read_tensors_and_metadata(path, ADVICE)
        with intact(path, ADVICE):
            return Material(**{**tensors, **metadata})


def gather(
    model: STSSAD,
    train: Tensor,
    pool: Tensor,
    train_paths: list[Path] | None = None,
    pool_paths: list[Path] | None = None,
    pool_folder: Path = Path("."),
) -> Material:
    """Right after a fit; with paths, images are shown larger than they were learned from."""
    order = np.argsort(-model.decision_scores_, kind="stable")
    n_bottom = min(N_BOTTOM, max(0, len(order) - N_TOP))
    ranked = np.concatenate([order[:N_TOP], order[len(order) - n_bottom :]]).tolist()
    normal = thumbnails(model, train, train_paths, model.train_index_[:N_EXAMPLES].tolist())
    generator = torch.Generator().manual_seed(model.seed)
    augmented = (augment(model, normal, generator) * 255).round().to(torch.uint8)
    plane, kinds = embedding_map(model, train, generator)
    if pool_paths is None:
        names = [f"image {i}" for i in range(len(pool))]
    else:
        names = [path.relative_to(pool_folder).as_posix() for path in pool_paths]
    images = thumbnails(model, pool, pool_paths, ranked)
    return Material(
        normal=normal,
        augmented=augmented,
        ranked=images,
        heatmaps=heatmaps(model, images, ranked),
        ranked_index=ranked,
        names=names,
        plane=plane,
        plane_kind=kinds,
    )


def thumbnails(model: STSSAD, images: Tensor, paths: list[Path] | None, index: list[int]) -> Tensor:
    """uint8 images, from their files where possible."""
    if paths is not None:
        reading = Reading(max(THUMBNAIL, model.image_size_), model.reading_.aspect)
        try:
            read = np.stack([read_image(paths[i], reading) for i in index])
            return torch.from_numpy(read).permute(0, 3, 1, 2).contiguous()
        except UnreadableError:  # a file has gone since it was read: show what was learned from
            pass
    chosen = images[index]
    return chosen if chosen.dtype == torch.uint8 else (chosen * 255).round().to(torch.uint8)


def heatmaps(model: STSSAD, images: Tensor, ranked: list[int]) -> Tensor:
    """Images with their anomaly maps over them."""
    maps = model.fitted_.transient.pool_maps
    if maps is None or model.map_scale_ is None:
        return images[:0]
    return overlays(images, model.map_scale_(maps[ranked]))


def augment(model: STSSAD, images: Tensor, generator: Generator) -> Tensor:
    """The learned augmentation of images; as they are, if nothing was tuned."""
    floats = as_floats(images, CPU)
    if model.augmentation_ is None or model.chosen_ is None:
        return floats
    a = torch.tensor(model.candidates_[model.chosen_].a)
    return model.augmentation_(floats, a, model.augmentation_.draw(len(images), generator))


def embedding_map(model: STSSAD, train: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Embeddings of some training, augmented and pool images in the plane, and which is which."""
    Z_trn, Z_pool = model.fitted_.transient.Z_trn, model.fitted_.transient.Z_pool
    some = torch.randperm(len(Z_trn), generator=generator)[:N_MAPPED]
    others = torch.randperm(len(Z_pool), generator=generator)[:N_MAPPED]
    sources = train[torch.from_numpy(model.train_index_)][some]
    Z_aug = embed_all(model.model_.encoder, augment(model, sources, generator))
    Z = [Z_trn[some].numpy(), Z_aug.numpy(), Z_pool[others].numpy()]
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
