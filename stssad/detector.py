"""The detector f_θ: an encoder and a head that tells normal from augmented (Sec. 5, Model setting).

θ and the buffers (BatchNorm's running statistics) are dicts of tensors that are handed in and
returned, never kept in the modules: the tuner differentiates through them, and starts share none.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from .encoders.batchnorm import BatchNorm1d
from .threads import in_order, workers

Tensors = dict[str, Tensor]

# ImageNet's channel statistics, as in the CutPaste paper whose detector this is. Pictures stay in
# [0, 1] everywhere else, so that augmentations know what black and white are.
CHANNEL_MEAN = (0.485, 0.456, 0.406)
CHANNEL_STD = (0.229, 0.224, 0.225)
CHUNK_PIXELS = 64 * 64 * 64  # of pictures that are embedded at a time, where no gradient is kept


def in_chunks(images: Tensor) -> tuple[Tensor, ...]:
    """Pictures, a few at a time: as many as are embedded fastest, in little memory."""
    return torch.split(images, chunk_size(images.shape[-1]))


def chunk_size(image_size: int) -> int:
    return max(4, min(64, CHUNK_PIXELS // image_size**2))


def head(embedding_dim: int) -> nn.Sequential:
    """d -> d -> 128 -> 2, with BatchNorm and ReLU between."""
    return nn.Sequential(
        nn.Linear(embedding_dim, embedding_dim, bias=False),
        BatchNorm1d(embedding_dim),
        nn.ReLU(),
        nn.Linear(embedding_dim, 128, bias=False),
        BatchNorm1d(128),
        nn.ReLU(),
        nn.Linear(128, 2),
    )


class Network(nn.Module):
    """Channel normalisation, encoder, head. Only the shape of f_θ; its weights are handed in."""

    def __init__(self, encoder: nn.Module, embedding_dim: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head(embedding_dim)
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(CHANNEL_MEAN)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(CHANNEL_STD)[:, None, None], persistent=False)

    def reset_parameters(self) -> None:
        """Draw the weights anew: the head's, and those of an encoder that trains from scratch."""
        if callable(reset := getattr(self.encoder, "reset_parameters", None)):
            reset()
        for module in self.head:
            if isinstance(module, nn.Linear | nn.BatchNorm1d):
                module.reset_parameters()

    def forward(self, images: Tensor, embed: bool = False) -> Tensor:
        z = self.encoder((images - self.mean) / self.std)
        return z if embed else self.head(z)  # type: ignore[no-any-return]


def embedding_dim_of(encoder: nn.Module, image_size: int) -> int:
    """The length of the encoder's embeddings, by trying it on an empty picture."""
    encoder = copy.deepcopy(encoder).cpu().eval()
    with torch.no_grad():
        z = encoder(torch.zeros(1, 3, image_size, image_size))
    if z.ndim != 2:
        raise ValueError(
            f"the encoder must map pictures (n, 3, m, m) to embeddings (n, d), got an output of "
            f"shape {tuple(z.shape)} for one picture; pool or flatten it"
        )
    return int(z.shape[1])


class Detector:
    """f_θ as pure functions of θ and the buffers."""

    def __init__(self, encoder: nn.Module, image_size: int, device: str = "cpu") -> None:
        dim = embedding_dim_of(encoder, image_size)
        self.network = Network(copy.deepcopy(encoder), dim).to(device)
        self.device = torch.device(device)

    def initial_state(self, seed: int) -> tuple[Tensors, Tensors]:
        """θ and buffers before any training; what trains from scratch is drawn from the seed."""
        network = copy.deepcopy(self.network).cpu()  # the same numbers on every device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network.reset_parameters()
        theta = {name: p.detach().to(self.device) for name, p in network.named_parameters()}
        named_buffers = network.state_dict().items()  # leaves out the channel statistics
        buffers = {name: b.to(self.device) for name, b in named_buffers if name not in theta}
        return theta, buffers

    def training_loss(
        self, theta: Mapping[str, Tensor], buffers: Tensors, normal: Tensor, augmented: Tensor
    ) -> tuple[Tensor, Tensors]:
        """L_trn: cross-entropy of normal (0) against augmented (1), in one batch, and new buffers.

        BatchNorm is in train mode. It writes into the buffers that it is given: hand it copies.
        """
        self.network.train()
        buffers = {name: b.clone() for name, b in buffers.items()}
        images = torch.cat([normal, augmented])
        targets = torch.zeros(len(images), dtype=torch.long, device=images.device)
        targets[len(normal) :] = 1
        logits = functional_call(self.network, {**theta, **buffers}, (images,))
        return F.cross_entropy(logits, targets), buffers

    def embed(self, theta: Mapping[str, Tensor], buffers: Tensors, images: Tensor) -> Tensor:
        """Embeddings (n, d), differentiable; BatchNorm in eval mode, so buffers are only read.

        In train mode each set would be normalised by its own statistics, which hides the very
        shift between the sets that L_val measures.
        """
        self.network.eval()
        return functional_call(  # type: ignore[no-any-return]
            self.network, {**theta, **buffers}, (images,), {"embed": True}
        )

    def frozen(self, theta: Mapping[str, Tensor], buffers: Tensors) -> "FrozenEncoder":
        """f_θ without its head, for good: what scores pictures."""
        network = copy.deepcopy(self.network)
        network.load_state_dict({**theta, **buffers})
        return FrozenEncoder(network.eval().requires_grad_(False), self.device)

    def embed_all(self, theta: Mapping[str, Tensor], buffers: Tensors, images: Tensor) -> Tensor:
        """Embeddings of any number of pictures, uint8 or float, on the CPU."""
        return self.frozen(theta, buffers).embed_all(images)


@dataclass(frozen=True)
class FrozenEncoder:
    """Weights that change no more. Unlike `Detector`, several threads may use it at once."""

    network: Network
    device: torch.device

    @torch.no_grad()
    def embed_chunk(self, images: Tensor) -> Tensor:
        """Embeddings of a few pictures, at once."""
        return self.network(as_floats(images, self.device), embed=True).cpu()  # type: ignore[no-any-return]

    @property
    def has_maps(self) -> bool:
        """Whether the encoder also tells what is where."""
        return all(hasattr(self.network.encoder, name) for name in ("feature_maps", "pooled"))

    @torch.no_grad()
    def maps_chunk(self, images: Tensor) -> list[Tensor]:
        """The encoder's feature maps of a few pictures, at once."""
        pictures = (as_floats(images, self.device) - self.network.mean) / self.network.std
        return self.network.encoder.feature_maps(pictures)  # type: ignore[operator,no-any-return]

    @torch.no_grad()
    def pooled(self, maps: list[Tensor]) -> Tensor:
        """The embeddings (n, d) that belong to the maps, on the CPU."""
        return self.network.encoder.pooled(maps).cpu()  # type: ignore[operator,no-any-return]

    def embed_all(self, images: Tensor) -> Tensor:
        """Embeddings of any number of pictures, a chunk at a time."""
        chunks = in_chunks(images)
        with workers() as pool:
            return torch.cat(list(in_order(pool, self.embed_chunk, chunks, len(chunks))))


def as_floats(images: Tensor, device: torch.device) -> Tensor:
    """Pictures as torch's default float in [0, 1]; they are stored as uint8 where they were so."""
    floats = images.to(device, torch.get_default_dtype())
    return floats / 255 if images.dtype == torch.uint8 else floats
