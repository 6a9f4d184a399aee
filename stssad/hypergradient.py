"""The gradient of L_val in `a` through the detector's own training step (Eq. 2; Alg. 1, line 8).

Legend: g = ∇_θ L_trn(θ, a); θ' = θ - α (μ·buf + g + λθ); v = ∇_θ' L_val(θ', a). Then

    dL_val/da  =  ∂_a L_val(θ', a)  -  α · ∂_a ⟨g(θ, a), v⟩
                  direct               through the step

since neither μ·buf nor λθ depends on `a`. No Hessian, no graph through the step: memory is that of
one chunk of pictures or of one mini-batch, whatever the size of the pool.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import grad

from .augment import Augmentation
from .detector import Detector, Tensors, as_floats
from .settings import Mode
from .val_loss import ValLoss


@dataclass(frozen=True)
class TrainBatch:
    """The mini-batch of L_trn: normal pictures, and those to be augmented with their noise."""

    normal: Tensor
    sources: Tensor
    noise: Tensor


@dataclass(frozen=True)
class ValSample:
    """What L_val sees: training pictures, those to be augmented with their noise, the pool.

    Pictures as they are stored, uint8 or float: a chunk at a time is made float, on the device.
    Where θ doesn't move, training and pool pictures need embedding only once: `embedded` is then
    (Z_trn, Z_val), and takes the place of `train` and `pool`.
    """

    train: Tensor
    sources: Tensor
    noise: Tensor
    pool: Tensor
    embedded: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class Hypergradient:
    """dL_val/da in its two parts, and L_val itself."""

    direct: Tensor
    indirect: Tensor
    val_loss: Tensor

    @property
    def total(self) -> Tensor:
        return self.direct + self.indirect


def hypergradient(
    detector: Detector,
    theta: Tensors,
    theta_next: Tensors,
    buffers_next: Tensors,
    a: Tensor,
    batch: TrainBatch | None,
    sample: ValSample,
    augmentation: Augmentation,
    val_loss: ValLoss,
    alpha: float,
    mode: Mode = "exact",
    chunk_size: int = 64,
) -> Hypergradient:
    """dL_val/da for the step from θ to θ' on `batch`; `buffers_next` are those after the step.

    Without a batch there was no step: θ' = θ doesn't depend on `a`, and first order is exact.
    """
    a = a.detach().requires_grad_()
    if batch is None:
        mode = "first_order"
    loss, direct, v = _validation_gradients(
        detector, theta_next, buffers_next, a, sample, augmentation, val_loss,
        chunk_size, second_order=mode != "first_order",
    )  # fmt: skip
    if mode == "first_order" or batch is None:
        through_step = torch.zeros_like(a)
    elif mode == "exact":
        through_step = _mixed_derivative(detector, theta, buffers_next, a, batch, augmentation, v)
    elif mode == "finite_difference":
        through_step = _mixed_difference(detector, theta, buffers_next, a, batch, augmentation, v)
    else:
        raise ValueError(
            f"unknown hypergradient mode {mode!r}; "
            "use 'exact', 'finite_difference' or 'first_order'"
        )
    return Hypergradient(direct, -alpha * through_step.detach(), loss)


def _validation_gradients(
    detector: Detector,
    theta: Tensors,
    buffers: Tensors,
    a: Tensor,
    sample: ValSample,
    augmentation: Augmentation,
    val_loss: ValLoss,
    chunk_size: int,
    second_order: bool,
) -> tuple[Tensor, Tensor, Tensors]:
    """L_val, ∂_a L_val and v = ∇_θ L_val, a chunk at a time (v is empty in first order).

    Embed all without a graph; take dL_val/dZ from the small matrix Z; run the chunks again with
    that as the outer gradient. Exact, because BatchNorm is in eval mode: no picture sees another.
    What fits into one chunk is embedded only once, with its graph.
    """
    theta = {name: p.detach().requires_grad_(second_order) for name, p in theta.items()}
    if sample.embedded is not None:
        assert not second_order, "embeddings that were computed once hold for a θ that stays"
        return _gradients_of_augmented(
            detector, theta, buffers, a, sample, augmentation, val_loss, chunk_size
        )
    if len(sample.train) + len(sample.sources) + len(sample.pool) <= chunk_size:
        return _gradients_at_once(detector, theta, buffers, a, sample, augmentation, val_loss)

    def floats(images: Tensor) -> Tensor:
        return as_floats(images, detector.device)

    def augment(rows: slice) -> Tensor:
        return augmentation(floats(sample.sources[rows]), a, sample.noise[rows])

    with torch.no_grad():
        Z_trn = _embed_chunks(detector, theta, buffers, sample.train, chunk_size)
        Z_val = _embed_chunks(detector, theta, buffers, sample.pool, chunk_size)
        Z_aug = torch.cat(
            [
                detector.embed(theta, buffers, augment(rows))
                for rows in _chunks(len(sample.sources), chunk_size)
            ]
        )
    embeddings = [Z.requires_grad_() for Z in (Z_trn, Z_aug, Z_val)]
    loss = val_loss(*embeddings)
    dZ_trn, dZ_aug, dZ_val = grad(loss, embeddings)

    v = {name: torch.zeros_like(p) for name, p in theta.items()} if second_order else {}
    if second_order:
        for images, dZ in ((sample.train, dZ_trn), (sample.pool, dZ_val)):
            for rows in _chunks(len(images), chunk_size):
                _accumulate(
                    v, theta, detector.embed(theta, buffers, floats(images[rows])), dZ[rows]
                )
    direct = torch.zeros_like(a)
    for rows in _chunks(len(sample.sources), chunk_size):
        Z = detector.embed(theta, buffers, augment(rows))
        direct = direct + _accumulate(v, theta, Z, dZ_aug[rows], a)
    return loss.detach(), direct.detach(), v


def _gradients_at_once(
    detector: Detector,
    theta: Tensors,
    buffers: Tensors,
    a: Tensor,
    sample: ValSample,
    augmentation: Augmentation,
    val_loss: ValLoss,
) -> tuple[Tensor, Tensor, Tensors]:
    """The same for a sample that fits into memory with its graph."""
    train, sources, pool = (
        as_floats(images, detector.device) for images in (sample.train, sample.sources, sample.pool)
    )
    augmented = augmentation(sources, a, sample.noise)
    Z = detector.embed(theta, buffers, torch.cat([train, augmented, pool]))
    sizes = [len(train), len(augmented), len(pool)]
    loss = val_loss(*torch.split(Z, sizes))
    tuned = {name: p for name, p in theta.items() if p.requires_grad}
    direct, *gradients = grad(loss, [a, *tuned.values()], allow_unused=True)
    v = {
        name: torch.zeros_like(p) if g is None else g
        for (name, p), g in zip(tuned.items(), gradients, strict=True)
    }
    return loss.detach(), direct.detach(), v


def _gradients_of_augmented(
    detector: Detector,
    theta: Tensors,
    buffers: Tensors,
    a: Tensor,
    sample: ValSample,
    augmentation: Augmentation,
    val_loss: ValLoss,
    chunk_size: int,
) -> tuple[Tensor, Tensor, Tensors]:
    """L_val and ∂_a L_val where only the augmented pictures are still to be embedded."""
    assert sample.embedded is not None
    Z_trn, Z_val = (Z.to(detector.device) for Z in sample.embedded)

    def embed(rows: slice) -> Tensor:
        sources = as_floats(sample.sources[rows], detector.device)
        return detector.embed(theta, buffers, augmentation(sources, a, sample.noise[rows]))

    chunks = _chunks(len(sample.sources), chunk_size)
    kept = embed(chunks[0])  # with its graph: a sample in one chunk is embedded once
    with torch.no_grad():
        rest = [embed(rows) for rows in chunks[1:]]
    Z_aug = torch.cat([kept.detach(), *rest]).requires_grad_()
    loss = val_loss(Z_trn, Z_aug, Z_val)
    (dZ_aug,) = grad(loss, Z_aug)
    direct = grad(kept, a, dZ_aug[chunks[0]])[0]
    for rows in chunks[1:]:
        direct = direct + grad(embed(rows), a, dZ_aug[rows])[0]
    return loss.detach(), direct.detach(), {}


def _chunks(n: int, size: int) -> list[slice]:
    return [slice(i, i + size) for i in range(0, n, size)]


def _embed_chunks(
    detector: Detector, theta: Tensors, buffers: Tensors, images: Tensor, size: int
) -> Tensor:
    return torch.cat(
        [
            detector.embed(theta, buffers, as_floats(chunk, detector.device))
            for chunk in torch.split(images, size)
        ]
    )


def _accumulate(
    v: Tensors, theta: Tensors, Z: Tensor, dZ: Tensor, a: Tensor | None = None
) -> Tensor:
    """Add dZ·∂Z/∂θ to v in place; return dZ·∂Z/∂a, or an empty tensor where there is no `a`."""
    inputs = [theta[name] for name in v] + ([a] if a is not None else [])
    gradients = grad(Z, inputs, dZ, allow_unused=True)  # the head is not used
    for name, gradient in zip(v, gradients, strict=False):
        if gradient is not None:
            v[name] += gradient
    return gradients[-1] if a is not None else Z.new_zeros(0)


def _mixed_derivative(
    detector: Detector,
    theta: Tensors,
    buffers: Tensors,
    a: Tensor,
    batch: TrainBatch,
    augmentation: Augmentation,
    v: Tensors,
) -> Tensor:
    """∂_a ⟨∇_θ L_trn(θ, a), v⟩, exactly, by differentiating the gradient.

    The graph of g reaches `a` by one backward pass through the augmentation, which therefore needs
    no second derivative (grid_sample has none).
    """
    theta = {name: p.detach().requires_grad_() for name, p in theta.items()}
    augmented = augmentation(batch.sources, a, batch.noise)
    loss, _ = detector.training_loss(theta, buffers, batch.normal, augmented)
    g = grad(loss, list(theta.values()), create_graph=True)
    return grad(g, a, [v[name] for name in theta])[0]


def _mixed_difference(
    detector: Detector,
    theta: Tensors,
    buffers: Tensors,
    a: Tensor,
    batch: TrainBatch,
    augmentation: Augmentation,
    v: Tensors,
) -> Tensor:
    """The same by a central difference of ∂_a L_trn along v: two first-order passes."""
    norm = torch.sqrt(sum((t.square().sum() for t in v.values()), start=a.new_zeros(())))
    epsilon = 0.01 / norm.clamp_min(torch.finfo(norm.dtype).tiny)

    def gradient_at(shift: Tensor) -> Tensor:
        moved = {name: p.detach() + shift * v[name] for name, p in theta.items()}
        augmented = augmentation(batch.sources, a, batch.noise)
        loss, _ = detector.training_loss(moved, buffers, batch.normal, augmented)
        return grad(loss, a)[0]

    return (gradient_at(epsilon) - gradient_at(-epsilon)) / (2 * epsilon)
