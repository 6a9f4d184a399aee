"""Our batch normalisation is torch's, to the second derivative."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad, gradgradcheck

from stssad.encoders.batchnorm import BatchNorm1d, BatchNorm2d

CASES = [(BatchNorm1d, nn.BatchNorm1d, (7, 3)), (BatchNorm2d, nn.BatchNorm2d, (5, 3, 4, 2))]


def layers(ours: type, theirs: type) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    mine, reference = ours(3).double(), theirs(3).double()
    with torch.no_grad():
        mine.weight.copy_(torch.tensor([0.0, -0.7, 1.3]))  # a channel of weight 0 divides nothing
        mine.bias.normal_()
    reference.load_state_dict(copy.deepcopy(mine.state_dict()))
    return mine, reference


@pytest.mark.parametrize(("ours", "theirs", "shape"), CASES)
def test_values_and_running_statistics(ours: type, theirs: type, shape: tuple[int, ...]) -> None:
    mine, reference = layers(ours, theirs)
    for _ in range(3):
        x = 2 + torch.randn(shape, dtype=torch.float64)
        torch.testing.assert_close(mine(x), reference(x), rtol=1e-12, atol=1e-12)
    for name, buffer in reference.state_dict().items():
        torch.testing.assert_close(mine.state_dict()[name], buffer, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mine.eval()(x), reference.eval()(x))


def second_derivatives(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Of a function that uses the gradients in the input, weight and bias unevenly."""
    x = x.clone().requires_grad_()
    tensors = [x, layer.weight, layer.bias]
    first = grad(layer(x).tanh().pow(2).sum(), tensors, create_graph=True)
    return list(grad(sum(g.pow(3).sum() for g in first), tensors))


@pytest.mark.parametrize(("ours", "theirs", "shape"), CASES)
def test_second_derivatives(ours: type, theirs: type, shape: tuple[int, ...]) -> None:
    mine, reference = layers(ours, theirs)
    x = 2 + torch.randn(shape, dtype=torch.float64)
    for got, wanted in zip(
        second_derivatives(mine, x), second_derivatives(reference, x), strict=True
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def test_against_numerical_derivatives() -> None:
    mine, _ = layers(BatchNorm2d, nn.BatchNorm2d)
    x = torch.randn(3, 3, 2, 2, dtype=torch.float64, requires_grad=True)

    def normalise(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        values = {"weight": weight, "bias": bias}
        return torch.func.functional_call(mine, values, (x,))  # type: ignore[no-any-return]

    tensors = [p.detach().clone().requires_grad_() for p in (mine.weight, mine.bias)]
    assert gradgradcheck(normalise, (x, *tensors))
