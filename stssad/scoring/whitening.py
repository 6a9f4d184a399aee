"""Coordinates in which normal images differ alike in all directions, and don't feel the light.

Legend: Z embeddings (n, d); w the same, whitened; L the Cholesky factor of the covariance. L⁻¹ is
kept, not L: products are all that a forward needs then, in torch and in ONNX alike.
"""

import torch
from torch import Tensor, nn

from ..storage.layout import canonical
from .nuisance import leading_directions, without

N_NUISANCE = 5  # directions of light that are left out of whitened embeddings


class Whitening(nn.Module):
    """w = L⁻¹(z - mean), less the directions of light; by the Ledoit-Wolf covariance.

    Shrunk, because with fewer images than dimensions the plain covariance is singular.
    """

    def __init__(self, n_nuisance: int = N_NUISANCE) -> None:
        super().__init__()
        self.n_nuisance = n_nuisance
        self.mean: Tensor | None
        self.inverse: Tensor | None
        self.nuisance: Tensor
        self.register_buffer("mean", None)
        self.register_buffer("inverse", None)
        self.register_buffer("nuisance", torch.empty(0, 0, dtype=torch.float64))

    def fit(self, Z: Tensor, light_changes: Tensor | None = None) -> "Whitening":
        """From embeddings of normal images (n, d), n at least 2; and what light does to some."""
        from sklearn.covariance import ledoit_wolf  # slow to import

        if len(Z) < 2:
            raise ValueError(f"a Gaussian needs at least 2 embeddings, got {len(Z)}")
        device, Z = self.nuisance.device, Z.detach().cpu().double()
        covariance = torch.from_numpy(ledoit_wolf(Z.numpy())[0])
        # A floor for embeddings that are constant in some dimension, far below any that are not.
        floor = 1e-10 * covariance.diagonal().mean().clamp_min(1e-10)
        regular = covariance + floor * torch.eye(len(covariance), dtype=covariance.dtype)
        self.mean = canonical(Z.mean(dim=0)).to(device)
        eye = torch.eye(len(regular), dtype=regular.dtype)
        inverse = torch.linalg.solve_triangular(torch.linalg.cholesky(regular), eye, upper=False)
        self.inverse = canonical(inverse).to(device)
        self.nuisance = torch.empty(0, Z.shape[1], dtype=torch.float64, device=device)
        if light_changes is not None and len(light_changes):
            changed = self.shift(light_changes.to(device))
            self.nuisance = canonical(leading_directions(changed, self.n_nuisance))
        return self

    @staticmethod
    def of(Z_trn: Tensor, light_changes: Tensor | None = None) -> "Whitening":
        return Whitening().to(Z_trn.device).fit(Z_trn, light_changes)

    def shift(self, difference: Tensor) -> Tensor:
        """A difference of embeddings (d,) or (n, d), whitened; differentiable."""
        if self.inverse is None:
            raise ValueError("this whitening has not been fitted; call fit(Z) first")
        return without(difference.double() @ self.inverse.T, self.nuisance)

    def forward(self, Z: Tensor) -> Tensor:
        """Embeddings (n, d), whitened and centred, in float64."""
        if self.mean is None:
            raise ValueError("this whitening has not been fitted; call fit(Z) first")
        return self.shift(Z.to(self.mean.device).double() - self.mean)
