"""The detector f_θ: an encoder and a head that tells normal from augmented (Sec. 5, Model setting).

θ and the buffers (BatchNorm's running statistics) are dicts of tensors that are handed in and
returned, never kept in the modules: the tuner differentiates through them, and restarts share none.
"""

import copy
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from .batchnorm import BatchNorm1d
from .encoder import embed, embedding_dim

Tensors = dict[str, Tensor]


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
    """Encoder and head. Only the shape of f_θ; its weights are handed in."""

    def __init__(self, encoder: nn.Module, embedding_dim: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head(embedding_dim)

    def reset_parameters(self) -> None:
        """Draw the weights again: the head's, and those of an encoder trained from scratch."""
        if callable(reset := getattr(self.encoder, "reset_parameters", None)):
            reset()
        for module in self.head:
            if isinstance(module, nn.Linear | nn.BatchNorm1d):
                module.reset_parameters()

    def forward(self, images: Tensor, only_embed: bool = False) -> Tensor:
        z = embed(self.encoder, images)
        return z if only_embed else self.head(z)


class Detector:
    """f_θ as pure functions of θ and the buffers."""

    def __init__(self, encoder: nn.Module, image_size: int, device: str = "cpu") -> None:
        dim = embedding_dim(encoder, image_size)
        self.network = Network(copy.deepcopy(encoder), dim).to(device)
        self.device = torch.device(device)

    def initial_state(self, seed: int) -> tuple[Tensors, Tensors]:
        """θ and buffers before any training; what trains from scratch is drawn from the seed."""
        network = copy.deepcopy(self.network).cpu()  # the same numbers on every device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network.reset_parameters()
        theta = {name: p.detach().to(self.device) for name, p in network.named_parameters()}
        named_buffers = network.state_dict().items()  # leaves out the input normalisation
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
            self.network, {**theta, **buffers}, (images,), {"only_embed": True}
        )

    def trained_encoder(self, theta: Mapping[str, Tensor], buffers: Tensors) -> nn.Module:
        """The encoder with these weights, for good; the head has served its purpose."""
        network = copy.deepcopy(self.network)
        network.load_state_dict({**theta, **buffers})
        return network.encoder.eval().requires_grad_(False)
