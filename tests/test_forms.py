"""Our iteration, the naive one, and the same written with other libraries agree."""

import pytest
import torch
from cases import FORMS, Case, make_case


def case() -> Case:
    """A fresh one: our iteration moves its state on."""
    return make_case(n_pool=20, size=32, width=8, n_train=40, n_augmented=20, chunk=16)


@pytest.mark.filterwarnings("ignore")  # of old libraries
@pytest.mark.parametrize("form", ["naive", "higher", "torchopt"])
def test_our_hypergradient_equals_that_of(form: str) -> None:
    if form != "naive":
        pytest.importorskip(form, reason=f"{form} is in the extra `speed`")
    torch.testing.assert_close(FORMS["exact"](case()), FORMS[form](case()), rtol=1e-4, atol=1e-7)
