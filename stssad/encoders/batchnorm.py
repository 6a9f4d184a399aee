"""Batch normalisation whose second derivative is lean: the numbers of torch's own, less memory.

The hypergradient differentiates a gradient. For batch normalisation in train mode, torch does that
by some thirty operations with up to ten temporaries of the activation's size, which made the peak
memory of an iteration. Here it is a linear combination of three tensors that are there anyway.

Legend, for one channel with n values: x̂ = (x - μ)·s with s = 1/σ; y = w·x̂ + b; G = dL/dy; and
P(t) = t - mean(t) - x̂·mean(t·x̂). The gradients are ∂x = w·s·P(G), ∂w = Σ G·x̂, ∂b = Σ G.
For U, u_w, u_b, the outer gradients of those three, let F = Σ U·∂x + u_w·∂w + u_b·∂b, and

    p = mean(U·x̂),  q = mean(G·x̂),  S = Σ U·P(G) = Σ U·G - ΣU·ΣG/n - n·p·q,  then

    dF/dG = w·s·P(U) + u_w·x̂ + u_b
    dF/dx = s·P(dF/dx̂) - w·S·s²·x̂/n   where dF/dx̂ = -w·s·(q·U + p·G) + u_w·G
    dF/dw = s·S
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

EVERYTHING = [True, True, True]


class BatchNorm1d(nn.BatchNorm1d):
    """Of vectors (n, c)."""

    def forward(self, x: Tensor) -> Tensor:
        return normalised(self, x) if self.training else super().forward(x)


class BatchNorm2d(nn.BatchNorm2d):
    """Of maps (n, c, h, w)."""

    def forward(self, x: Tensor) -> Tensor:
        return normalised(self, x) if self.training else super().forward(x)


def normalised(layer: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    """In train mode; the running statistics move, in place."""
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked.add_(1)
    running = (layer.running_mean, layer.running_var)
    return Normalisation.apply(x, layer.weight, layer.bias, running, layer.momentum, layer.eps)  # type: ignore[no-any-return, no-untyped-call]


class Normalisation(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor,
        b: Tensor,
        running: tuple[Tensor, Tensor],
        momentum: float,
        eps: float,
    ) -> Tensor:
        y, mean, s = torch.native_batch_norm(x, w, b, *running, True, momentum, eps)
        ctx.save_for_backward(x, w, mean, s)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        return (*Gradient.apply(*outer, *ctx.saved_tensors, ctx.eps), None, None, None)  # type: ignore[no-untyped-call]


class Gradient(Function):
    """∂x, ∂w and ∂b as functions of G, x and w, which the second derivative needs."""

    @staticmethod
    def forward(
        ctx: Any, G: Tensor, x: Tensor, w: Tensor, mean: Tensor, s: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        dx, dw, db = gradients(G, x, w, mean, s, eps)
        ctx.save_for_backward(G, x, w, mean, s, dw, db)
        ctx.eps = eps
        return dx, dw, db

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, U: Tensor, u_w: Tensor, u_b: Tensor) -> Any:
        G, x, w, mean, s, sum_Gx, sum_G = ctx.saved_tensors
        n = x.numel() / x.shape[1]
        wsPU, sum_Ux, sum_U = gradients(U, x, w, mean, s, ctx.eps)
        p, q = sum_Ux / n, sum_Gx / n
        over_all = [k for k in range(x.ndim) if k != 1]
        S = (U * G).sum(over_all) - sum_U * sum_G / n - n * p * q

        def each(channel: Tensor) -> Tensor:
            return channel.view(1, -1, *[1] * (x.ndim - 2))

        of_G = s * (u_w - w * s * p)
        of_x_hat = -of_G * q - w * S * s.square() / n
        dF_dx = wsPU * each(-s * q)
        dF_dx.addcmul_(G, each(of_G)).addcmul_(x, each(of_x_hat * s))
        dF_dx.add_(each(-of_G * sum_G / n - of_x_hat * s * mean))
        dF_dG = wsPU.addcmul_(x, each(u_w * s)).add_(each(u_b - u_w * s * mean))
        return dF_dG, dF_dx, s * S, None, None, None


def gradients(
    G: Tensor, x: Tensor, w: Tensor, mean: Tensor, s: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """∂x, ∂w, ∂b by torch's own kernel."""
    return torch.ops.aten.native_batch_norm_backward(  # type: ignore[no-any-return]
        G, x, w, None, None, mean, s, True, eps, EVERYTHING
    )
