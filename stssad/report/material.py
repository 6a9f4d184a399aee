"""What the page shows beyond the model itself: images, and a map of the embeddings.

Kept in report.safetensors, so that the page can be rebuilt where the images are no more.
"""

import base64
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from ..encoders.encoding import as_floats, embed_all
from ..images import UnreadableError, read_image
from ..model import STSSAD
from ..run import ADVICE
from ..scoring.kinds import kinds_of
from ..scoring.threshold import borderline
from ..settings import Reading
from ..storage import intact, read_tensors_and_metadata, require, write_tensors

SIDE, SMALL_SIDE, MANY = 176, 112, 600  # pixels of pool images, of fewer where there are many
N_EXAMPLES, N_MAPPED = 6, 80
KINDS = ("training", "augmented", "pool")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Material:
    """Examples are uint8 (n, 3, h, h); `plane` (n, 2) goes with `plane_kind` (n,), of KINDS; the
    rest is of all pool images, in their order."""

    normal: Tensor
    augmented: Tensor
    thumbnails: Tensor  # JPEG files one after another, as bytes
    offsets: Tensor  # (n + 1,): where each begins
    maps: Tensor  # uint8 (n, h, w); none (0, ...) without anomaly maps
    kinds: Tensor  # (n,): the group of each that is flagged or borderline, else -1
    names: list[str]  # as the page shows them
    files: list[str]  # where the images are; empty where they came from memory
    plane: Tensor
    plane_kind: Tensor

    def save(self, folder: Path) -> None:
        tensors = {name: getattr(self, name) for name in TENSORS}
        metadata = {"names": self.names, "files": self.files}
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
            found = Material(**{**tensors, **metadata})
            n = len(found.names)
            fits = len(found.offsets) == n + 1 and len(found.kinds) == n == len(found.files)
            require(fits and len(found.maps) in (0, n), "its parts don't belong together")
        return found

    def thumbnail(self, i: int) -> bytes:
        """The JPEG file of one pool image."""
        begin, end = self.offsets[i : i + 2].tolist()
        return bytes(self.thumbnails[begin:end].numpy())

    def map_text(self, i: int) -> str:
        """One pool image's map, a byte for each place, in base64; nothing where there is none."""
        if not len(self.maps):
            return ""
        return base64.b64encode(self.maps[i].numpy().tobytes()).decode()


TENSORS = ("normal", "augmented", "thumbnails", "offsets", "maps", "kinds", "plane", "plane_kind")


def gather(
    model: STSSAD,
    train: Tensor,
    pool: Tensor,
    train_paths: list[Path] | None = None,
    pool_paths: list[Path] | None = None,
    pool_folder: Path = Path("."),
) -> Material:
    """Right after a fit; with paths, examples are shown larger than they were learned from."""
    normal = examples(model, train, train_paths, model.train_index_[:N_EXAMPLES].tolist())
    generator = torch.Generator().manual_seed(model.seed)
    augmented = (augment(model, normal, generator) * 255).round().to(torch.uint8)
    plane, plane_kind = embedding_map(model, train, generator)
    if pool_paths is None:
        names, files = [f"image {i}" for i in range(len(pool))], [""] * len(pool)
    else:
        names = [path.relative_to(pool_folder).as_posix() for path in pool_paths]
        files = [str(path.absolute()) for path in pool_paths]
    thumbnails, offsets = packed(pool)
    return Material(
        normal=normal,
        augmented=augmented,
        thumbnails=thumbnails,
        offsets=offsets,
        maps=small_maps(model),
        kinds=kinds(model),
        names=names,
        files=files,
        plane=plane,
        plane_kind=plane_kind,
    )


def packed(pool: Tensor) -> tuple[Tensor, Tensor]:
    """A JPEG file of each image, smaller where there are many, and where each begins."""
    side, content, offsets = SIDE if len(pool) <= MANY else SMALL_SIDE, bytearray(), [0]
    for image in pool:
        content += jpeg(image, side)
        offsets.append(len(content))
    return torch.frombuffer(content, dtype=torch.uint8), torch.tensor(offsets)


def jpeg(image: Tensor, side: int, quality: int = 80) -> bytes:
    """Of an image (3, h, h), no larger than that."""
    from PIL import Image

    bytes_ = image if image.dtype == torch.uint8 else (image * 255).round().to(torch.uint8)
    file, shown = io.BytesIO(), Image.fromarray(bytes_.permute(1, 2, 0).contiguous().numpy())
    if shown.width > side:
        shown = shown.resize((side, side), Image.Resampling.BILINEAR)
    shown.save(file, "JPEG", quality=quality)
    return file.getvalue()


def small_maps(model: STSSAD) -> Tensor:
    maps = model.fitted_.transient.pool_maps
    if maps is None or model.map_scale_ is None:
        return torch.empty(0, 0, 0, dtype=torch.uint8)
    return (model.map_scale_(maps) * 255).round().to(torch.uint8)


def kinds(model: STSSAD) -> Tensor:
    """Groups of the flagged and borderline images."""
    scores, found = model.decision_scores_, np.full(len(model.decision_scores_), -1)
    share = model.contamination_
    expected = 0 if share is None or share.looks_clean else round(share.estimate * len(scores))
    chosen = scores > borderline(scores, model.normal_scores_, model.threshold_, expected)
    rows = model.fitted_.transient.descriptors
    if rows is None:
        found[chosen] = 0
    elif chosen.any():
        found[chosen] = kinds_of(rows.numpy()[chosen])
    return torch.from_numpy(found)


def examples(model: STSSAD, images: Tensor, paths: list[Path] | None, index: list[int]) -> Tensor:
    """uint8 images, from their files where possible."""
    if paths is not None:
        reading = Reading(max(SIDE, model.image_size_), model.reading_.aspect)
        try:
            read = np.stack([read_image(paths[i], reading) for i in index])
            return torch.from_numpy(read).permute(0, 3, 1, 2).contiguous()
        except UnreadableError:  # a file has gone since it was read: show what was learned from
            pass
    chosen = images[index]
    return chosen if chosen.dtype == torch.uint8 else (chosen * 255).round().to(torch.uint8)


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
