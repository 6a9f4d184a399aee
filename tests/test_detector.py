"""The detector as a pure function of θ and buffers."""

import pytest
import torch
from torch import nn

from stssad import MLP, ResNet18
from stssad.encoders.detector import Detector
from stssad.encoders.encoder import PlainEncoder, as_encoder, embed, embedding_dim
from stssad.encoders.encoding import embed_all


def test_resnet18_has_the_original_number_of_weights() -> None:
    n_weights = sum(p.numel() for p in ResNet18().parameters())
    assert n_weights == 11_689_512 - (512 * 1000 + 1000)  # torchvision's, less its classifier


@pytest.mark.parametrize("image_size", [32, 64, 100])
@pytest.mark.parametrize("width", [4, 16])
def test_resnet18_embeds_into_eight_times_its_width(width: int, image_size: int) -> None:
    assert embedding_dim(ResNet18(width), image_size) == 8 * width == ResNet18(width).embedding_dim


def test_resnet18_halves_the_image_five_times() -> None:
    encoder = ResNet18(width=4)
    assert encoder.stem(torch.zeros(1, 3, 224, 224)).shape == (1, 4, 56, 56)
    assert encoder.layers(encoder.stem(torch.zeros(1, 3, 224, 224))).shape == (1, 32, 7, 7)


@pytest.mark.parametrize("n_layers", [1, 8, 128])
def test_mlp_has_as_many_layers_as_asked(n_layers: int) -> None:
    encoder = MLP(image_size=8, n_layers=n_layers, width=5)
    assert sum(isinstance(m, nn.Linear) for m in encoder.modules()) == n_layers
    assert embedding_dim(encoder, 8) == 5


@pytest.mark.parametrize("encoder", [ResNet18(4), MLP(4)])
def test_the_papers_encoders_take_imagenets_statistics(encoder: nn.Module) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    grey = torch.tensor(mean).view(1, 3, 1, 1).expand(1, 3, 4, 4)
    one_deviation = grey + torch.tensor(std).view(1, 3, 1, 1)
    normalization: nn.Module = encoder.normalization  # type: ignore[assignment]
    torch.testing.assert_close(normalization(grey), torch.zeros(1, 3, 4, 4))
    torch.testing.assert_close(normalization(one_deviation), torch.ones(1, 3, 4, 4))
    assert not any("normalization" in name for name in encoder.state_dict())


def test_a_plain_module_sees_images_as_they_are() -> None:
    encoder = as_encoder(nn.Flatten(), trains=False)
    images = torch.rand(2, 3, 4, 4)
    assert isinstance(encoder, PlainEncoder) and not encoder.trainable
    assert torch.equal(embed(encoder, images), images.flatten(1))


def test_an_encoder_says_whether_it_is_trained() -> None:
    class Silent(nn.Module):
        def features(self, images: torch.Tensor) -> list[torch.Tensor]:
            return [images]

        def pooled(self, maps: list[torch.Tensor]) -> torch.Tensor:
            return maps[0].mean((2, 3))

    with pytest.raises(ValueError, match=r"Silent.trainable must be True or False, got None"):
        as_encoder(Silent(), trains=True)


def test_initial_weights_follow_the_seed_and_leave_the_global_generator_alone() -> None:
    detector = Detector(ResNet18(width=4), image_size=32)
    before = torch.get_rng_state()
    (first, _), (same, _), (other, _) = (detector.initial_state(seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    name = "encoder.stem.0.weight"
    assert torch.equal(first[name], same[name]) and not torch.equal(first[name], other[name])


def test_an_encoder_without_reset_keeps_its_weights() -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    theta, _ = Detector(as_encoder(encoder, trains=True), image_size=4).initial_state(seed=7)
    assert torch.equal(theta["encoder.module.1.weight"], encoder[1].weight)


def test_training_loss_is_the_cross_entropy_of_the_logits() -> None:
    detector = Detector(ResNet18(width=4), image_size=32)
    theta, buffers = detector.initial_state(0)
    normal, augmented = torch.rand(5, 3, 32, 32), torch.rand(3, 3, 32, 32)
    loss, _ = detector.training_loss(theta, buffers, normal, augmented)
    detector.network.load_state_dict({**theta, **buffers})
    logits = detector.network.train()(torch.cat([normal, augmented]))
    log_p = logits.log_softmax(1)
    wanted = -(log_p[:5, 0].sum() + log_p[5:, 1].sum()) / 8
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_embedding_doesnt_depend_on_what_else_is_in_the_batch() -> None:
    detector = Detector(ResNet18(width=4), image_size=32)
    theta, buffers = detector.initial_state(0)
    images = torch.rand(6, 3, 32, 32)
    together = detector.embed(theta, buffers, images)
    alone = detector.embed(theta, buffers, images[:1])
    torch.testing.assert_close(together[:1], alone, rtol=1e-4, atol=1e-5)


def test_uint8_and_float_images_embed_alike() -> None:
    detector = Detector(ResNet18(width=4), image_size=32)
    encoder = detector.trained_encoder(*detector.initial_state(0))
    whole = torch.randint(0, 256, (70, 3, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(embed_all(encoder, whole), embed_all(encoder, whole.float() / 255))


def test_an_encoder_that_gives_maps_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got an output of shape \(1, 2, 8, 8\).*pool or flatten"):
        Detector(as_encoder(nn.Conv2d(3, 2, 1), trains=True), image_size=8)
