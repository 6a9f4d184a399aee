"""The gradient of L_val in `a` through the detector's own training step (Eq. 3; Alg. 1, line 8).

Legend: g = ∇_θ L_trn(θ, a); θ' = θ - α (μ·buf + g + λθ); v = ∇_θ' L_val(θ', a). Then

    dL_val/da  =  ∂_a L_val(θ', a)  -  α · ∂_a ⟨g(θ, a), v⟩
                  direct               through the step

since neither μ·buf nor λθ depends on `a`. No Hessian, no graph through the step: memory is that of
one chunk of images or of one mini-batch, whatever the size of the pool.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import grad

from ..encoders.detector import Tensors
from .problem import ThetaStep, TuningProblem, ValSample


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
    problem: TuningProblem, step: ThetaStep, a: Tensor, sample: ValSample
) -> Hypergradient:
    """dL_val/da for a step from θ to θ', by `problem.settings.hypergradient`."""
    mode = problem.settings.hypergradient
    a = a.detach().requires_grad_()
    loss, direct, v = _validation_gradients(
        problem, step, a, sample, second_order=mode != "first_order"
    )
    through_step = torch.zeros_like(a)
    if mode == "exact":
        through_step = _mixed_derivative(problem, step, a, v)
    elif mode == "finite_difference":
        through_step = _mixed_difference(problem, step, a, v)
    return Hypergradient(direct, -step.alpha * through_step.detach(), loss)


def _validation_gradients(
    problem: TuningProblem, step: ThetaStep, a: Tensor, sample: ValSample, second_order: bool
) -> tuple[Tensor, Tensor, Tensors]:
    """L_val, ∂_a L_val and v = ∇_θ' L_val, a chunk at a time (v is empty in first order).

    Embed all without a graph; take dL_val/dZ from the small matrix Z; run the chunks again with
    that as the outer gradient. Exact, because BatchNorm is in eval mode: no image sees another.
    What fits into one chunk is embedded only once, with its graph.
    """
    theta = {name: p.detach().requires_grad_(second_order) for name, p in step.theta_next.items()}
    size = problem.settings.chunk_size
    if len(sample) <= size:
        return _gradients_at_once(problem, theta, step.buffers_next, a, sample)

    def embed(images: Tensor) -> Tensor:
        return problem.detector.embed(theta, step.buffers_next, images)

    def embed_augmented(rows: slice) -> Tensor:
        return embed(problem.augment(sample.sources[rows], a, sample.noise[rows]))

    def embed_all(images: Tensor) -> Tensor:
        return torch.cat([embed(problem.floats(chunk)) for chunk in torch.split(images, size)])

    of_augmented = _chunks(len(sample.sources), size)
    with torch.no_grad():
        Z_trn, Z_val = embed_all(sample.train), embed_all(sample.pool)
        Z_aug = torch.cat([embed_augmented(rows) for rows in of_augmented])
    embeddings = [Z.requires_grad_() for Z in (Z_trn, Z_aug, Z_val)]
    loss = problem.val_loss(*embeddings)
    dZ_trn, dZ_aug, dZ_val = grad(loss, embeddings)

    v = {name: torch.zeros_like(p) for name, p in theta.items()} if second_order else {}
    if second_order:
        for images, dZ in ((sample.train, dZ_trn), (sample.pool, dZ_val)):
            for rows in _chunks(len(images), size):
                _accumulate(v, theta, embed(problem.floats(images[rows])), dZ[rows])
    direct = torch.zeros_like(a)
    for rows in of_augmented:
        direct = direct + _accumulate(v, theta, embed_augmented(rows), dZ_aug[rows], a)
    return loss.detach(), direct.detach(), v


def _gradients_at_once(
    problem: TuningProblem, theta: Tensors, buffers: Tensors, a: Tensor, sample: ValSample
) -> tuple[Tensor, Tensor, Tensors]:
    """The same for a sample that fits into memory with its graph."""
    train, pool = problem.floats(sample.train), problem.floats(sample.pool)
    augmented = problem.augment(sample.sources, a, sample.noise)
    Z = problem.detector.embed(theta, buffers, torch.cat([train, augmented, pool]))
    loss = problem.val_loss(*torch.split(Z, [len(train), len(augmented), len(pool)]))
    tuned = {name: p for name, p in theta.items() if p.requires_grad}
    direct, *gradients = grad(loss, [a, *tuned.values()], allow_unused=True)
    v = {
        name: torch.zeros_like(p) if g is None else g
        for (name, p), g in zip(tuned.items(), gradients, strict=True)
    }
    return loss.detach(), direct.detach(), v


def _chunks(n: int, size: int) -> list[slice]:
    return [slice(i, i + size) for i in range(0, n, size)]


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


def _mixed_derivative(problem: TuningProblem, step: ThetaStep, a: Tensor, v: Tensors) -> Tensor:
    """∂_a ⟨∇_θ L_trn(θ, a), v⟩, exactly, by differentiating the gradient.

    The graph of g reaches `a` by one backward pass through the augmentation, which therefore needs
    no second derivative (grid_sample has none).
    """
    theta = {name: p.detach().requires_grad_() for name, p in step.theta.items()}
    g = grad(_training_loss(problem, step, theta, a), list(theta.values()), create_graph=True)
    return grad(g, a, [v[name] for name in theta])[0]


def _mixed_difference(problem: TuningProblem, step: ThetaStep, a: Tensor, v: Tensors) -> Tensor:
    """The same by a central difference of ∂_a L_trn along v: two first-order passes."""
    norm = torch.sqrt(sum((t.square().sum() for t in v.values()), start=a.new_zeros(())))
    epsilon = 0.01 / norm.clamp_min(torch.finfo(norm.dtype).tiny)

    def gradient_at(shift: Tensor) -> Tensor:
        moved = {name: p.detach() + shift * v[name] for name, p in step.theta.items()}
        return grad(_training_loss(problem, step, moved, a), a)[0]

    return (gradient_at(epsilon) - gradient_at(-epsilon)) / (2 * epsilon)


def _training_loss(problem: TuningProblem, step: ThetaStep, theta: Tensors, a: Tensor) -> Tensor:
    """L_trn(θ, a) on the step's mini-batch, differentiable in both."""
    batch = step.batch
    augmented = problem.augmentation(batch.sources, a, batch.noise)
    return problem.detector.training_loss(theta, step.buffers_next, batch.normal, augmented)[0]
