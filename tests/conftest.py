"""Small networks run fastest on one thread, and the same on every machine."""

from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture()
def float64() -> Iterator[None]:
    """Everything in double precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
