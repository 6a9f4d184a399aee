"""What the page shows beyond the model itself: images, and embeddings projected to a plane.

Stored in report.safetensors, so that the page can be rebuilt without the image files.
"""

import base64
import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from ..encoders.encoding import as_floats, embed_all
from ..images.decode import UnreadableError, read_image
from ..methods.refit import find_far_patches
from ..model import STSSAD
from ..runs.folder import ADVICE, RunFolder
from ..scoring.groups import build_descriptors, group_anomalies
from ..scoring.score import PretrainedScore
from ..scoring.threshold import borderline
from ..storage.files import intact, read_tensors_and_metadata, require, write_tensors

SIDE, SMALL_SIDE, MANY = 176, 112, 600  # pixels of pool images, of fewer where there are many
N_EXAMPLES, N_MAPPED = 6, 80
SOURCES = ("training", "augmented", "pool")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Material:
    """Examples are uint8 (n, 3, h, h); `plane` (n, 2) goes with `plane_source` (n,), of SOURCES;
    the rest is of all pool images, in their order."""

    normal: Tensor
    augmented: Tensor
    thumbnails: Tensor  # JPEG files one after another, as bytes
    offsets: Tensor  # (n + 1,): where each begins
    maps: Tensor  # uint8 (n, h, w); none (0, ...) without anomaly maps
    groups: Tensor  # (n,): of each that is flagged or borderline, else -1
    names: list[str]  # as the page shows them
    files: list[str]  # paths of the images; empty where they came from memory
    plane: Tensor
    plane_source: Tensor

    def save(self, folder: Path) -> None:
        tensors = {stored: getattr(self, name) for name, stored in TENSORS.items()}
        metadata = {"names": self.names, "files": self.files}
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(RunFolder(folder).material, tensors, metadata)

    @staticmethod
    def load(folder: Path) -> "Material":
        path = RunFolder(folder).material
        if not path.is_file():
            raise FileNotFoundError(
                f"no {path.name} in {str(folder)!r}; give a folder that `stssad fit` wrote"
            )
        tensors, metadata = read_tensors_and_metadata(path, ADVICE)
        with intact(path, ADVICE):
            fields = {name: tensors[stored] for name, stored in TENSORS.items()}
            material = Material(**{**fields, **metadata})
            n = len(material.names)
            fits = len(material.offsets) == n + 1 and len(material.groups) == n
            fits = fits and len(material.files) == n and len(material.maps) in (0, n)
            require(fits, "its parts don't belong together")
        return material

    def thumbnail(self, i: int) -> bytes:
        """The JPEG file of one pool image."""
        begin, end = self.offsets[i : i + 2].tolist()
        return bytes(self.thumbnails[begin:end].numpy())

    def map_text(self, i: int) -> str:
        """One pool image's map, a byte for each patch, in base64; empty without maps."""
        if not len(self.maps):
            return ""
        return base64.b64encode(self.maps[i].numpy().tobytes()).decode()


NAMES = ("normal", "augmented", "thumbnails", "offsets", "maps", "groups", "plane", "plane_source")
# In the file, as runs of version 0.2 have them.
TENSORS = {
    name: {"groups": "kinds", "plane_source": "plane_kind"}.get(name, name) for name in NAMES
}


def gather(
    model: STSSAD,
    train: Tensor,
    pool: Tensor,
    train_paths: list[Path] | None = None,
    pool_paths: list[Path] | None = None,
    pool_folder: Path = Path("."),
) -> Material:
    """Right after a fit, before its scores are explained; with paths, examples are read again,
    larger than the model's images."""
    normal = load_examples(model, train, train_paths, model.train_index_[:N_EXAMPLES].tolist())
    if pool_paths is None:
        names, files = [f"image {i}" for i in range(len(pool))], [""] * len(pool)
    else:
        names = [path.relative_to(pool_folder).as_posix() for path in pool_paths]
        files = [str(path.absolute()) for path in pool_paths]
    thumbnails, offsets = pack_thumbnails(pool)
    return Material(
        normal=normal,
        augmented=normal[:0],
        thumbnails=thumbnails,
        offsets=offsets,
        maps=scale_maps(model),
        groups=group_images(model),
        names=names,
        files=files,
        plane=torch.empty(0, 2),
        plane_source=torch.empty(0, dtype=torch.int64),
    )


def explain_material(material: Material, model: STSSAD, train: Tensor, pool: Tensor) -> Material:
    """With examples of the learned augmentation, and where it moves embeddings."""
    generator = torch.Generator().manual_seed(model.seed)
    augmented = (augment(model, material.normal, generator) * 255).round().to(torch.uint8)
    plane, plane_source = project_embeddings(model, train, pool, generator)
    return replace(material, augmented=augmented, plane=plane, plane_source=plane_source)


def pack_thumbnails(pool: Tensor) -> tuple[Tensor, Tensor]:
    """A JPEG file of each image, smaller where there are many, and where each begins."""
    side, content, offsets = SIDE if len(pool) <= MANY else SMALL_SIDE, bytearray(), [0]
    for image in pool:
        content += encode_jpeg(image, side)
        offsets.append(len(content))
    return torch.frombuffer(content, dtype=torch.uint8), torch.tensor(offsets)


def encode_jpeg(image: Tensor, side: int, quality: int = 80) -> bytes:
    """An image (3, h, h) as a file, at most `side` pixels wide."""
    from PIL import Image

    bytes_ = image if image.dtype == torch.uint8 else (image * 255).round().to(torch.uint8)
    file, shown = io.BytesIO(), Image.fromarray(bytes_.permute(1, 2, 0).contiguous().numpy())
    if shown.width > side:
        shown = shown.resize((side, side), Image.Resampling.BILINEAR)
    shown.save(file, "JPEG", quality=quality)
    return file.getvalue()


def scale_maps(model: STSSAD) -> Tensor:
    """The pool's anomaly maps as uint8 (n, h, w)."""
    maps = model.workings_.pool_maps
    if maps is None or model.map_scale_ is None:
        return torch.empty(0, 0, 0, dtype=torch.uint8)
    return (model.map_scale_(maps) * 255).round().to(torch.uint8)


def group_images(model: STSSAD) -> Tensor:
    """Groups (n,) of the flagged and borderline images."""
    scores, groups = model.decision_scores_, np.full(len(model.decision_scores_), -1)
    share = model.contamination_
    expected = 0 if share is None or share.looks_clean else round(share.estimate * len(scores))
    chosen = scores > borderline(scores, model.tail_, model.pool_threshold_, expected)
    rows = describe_anomalies(model)
    if rows is None:
        groups[chosen] = 0
    elif chosen.any():
        groups[chosen] = group_anomalies(rows.numpy()[chosen])
    return torch.from_numpy(groups)


def describe_anomalies(model: STSSAD) -> Tensor | None:
    """(m, c) of pool images, by which groups are formed; None where there are no patches."""
    score, pool = model.model_.scorer, model.workings_.pool
    if not isinstance(score, PretrainedScore) or score.bank is None or pool is None:
        return None
    patches = find_far_patches(score.bank, pool).patches
    whitened = score.gaussian.density.whitening(pool.pooled).cpu()
    return build_descriptors(patches, score.bank.bank.cpu(), whitened)


def load_examples(
    model: STSSAD, images: Tensor, paths: list[Path] | None, index: list[int]
) -> Tensor:
    """uint8 images, from their files where possible."""
    if paths is not None:
        reading = replace(model.reading_, image_size=max(SIDE, model.image_size_))
        try:
            pixels = np.stack([read_image(paths[i], reading) for i in index])
            return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
        except UnreadableError:  # it has gone since it was read: the image as the model saw it
            pass
    chosen = images[index]
    return chosen if chosen.dtype == torch.uint8 else (chosen * 255).round().to(torch.uint8)


def augment(model: STSSAD, images: Tensor, generator: Generator) -> Tensor:
    """Images with the learned augmentation; unchanged if nothing was tuned."""
    floats = as_floats(images, CPU)
    if model.augmentation_ is None or model.chosen_ is None:
        return floats
    a = torch.tensor(model.candidates_[model.chosen_].a)
    return model.augmentation_(floats, a, model.augmentation_.draw(len(images), generator))


def project_embeddings(
    model: STSSAD, train: Tensor, pool: Tensor, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Embeddings of some training, augmented and pool images in the plane, and their sources."""
    some = torch.randperm(len(model.train_index_), generator=generator)[:N_MAPPED]
    others = torch.randperm(len(pool), generator=generator)[:N_MAPPED]
    sources = train[torch.from_numpy(model.train_index_)][some]
    shown = [sources, augment(model, sources, generator), pool[others]]
    Z = [embed_all(model.model_.encoder, images).numpy() for images in shown]
    sources_of_rows = np.concatenate([np.full(len(z), k) for k, z in enumerate(Z)])
    return torch.from_numpy(to_plane(np.concatenate(Z))), torch.from_numpy(sources_of_rows)


def to_plane(Z: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """t-SNE with a fixed seed; principal components where there are too few points for it."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if len(Z) < 20:
        plane: npt.NDArray[np.float32] = PCA(2, random_state=0).fit_transform(Z)
        return plane
    perplexity = min(30, (len(Z) - 1) // 3)
    tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=0, method="exact")
    plane = tsne.fit_transform(Z).astype(np.float32)
    return plane
