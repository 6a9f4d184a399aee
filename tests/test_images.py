"""Images from tensors, arrays, folders and lists, and every way they can be wrong."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from stssad.images.reading import Reading
from stssad.images.source import as_images


def save(
    path: Path, size: tuple[int, int] = (20, 12), color: tuple[int, ...] = (255, 0, 0)
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


def test_float_tensors_pass_through() -> None:
    images = torch.rand(3, 3, 8, 8)
    assert torch.equal(as_images(images, Reading(64), "train"), images)


def test_uint8_arrays_become_channels_first() -> None:
    array = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    images = as_images(array, Reading(64), "train")
    assert images.dtype == torch.uint8 and images.shape == (3, 3, 8, 8)
    assert torch.equal(images[1, 2], torch.from_numpy(array[1, :, :, 2]))


def test_a_list_of_images_is_stacked() -> None:
    assert as_images([torch.rand(3, 8, 8) for _ in range(5)], Reading(64), "train").shape == (
        5,
        3,
        8,
        8,
    )


def test_a_folder_is_searched_below_in_a_stable_order(tmp_path: Path) -> None:
    save(tmp_path / "b" / "ä.png", color=(0, 255, 0))
    save(tmp_path / "a" / "2.JPG", color=(0, 0, 255))
    save(tmp_path / "a" / "1.png")
    save(tmp_path / ".hidden" / "x.png")
    save(tmp_path / ".x.png")
    (tmp_path / "notes.txt").write_text("no image")
    images = as_images(tmp_path, Reading(8), "train")
    assert images.dtype == torch.uint8 and images.shape == (3, 3, 8, 8)
    brightest = images.float().mean((2, 3)).argmax(1).tolist()
    assert brightest == [0, 2, 1]  # a/1 is red, a/2 blue, b/ä green
    assert torch.equal(as_images(str(tmp_path), Reading(8), "train"), images)


def test_a_list_of_paths_keeps_its_order(tmp_path: Path) -> None:
    save(tmp_path / "1.png", color=(255, 0, 0))
    save(tmp_path / "2.png", color=(0, 0, 255))
    images = as_images([tmp_path / "2.png", str(tmp_path / "1.png")], Reading(8), "train")
    assert images[:, 0, 0, 0].tolist() == [0, 255]


def test_grey_and_transparent_files_become_three_channels(tmp_path: Path) -> None:
    Image.new("L", (9, 9), 77).save(tmp_path / "grey.png")
    Image.new("RGBA", (9, 9), (77, 77, 77, 255)).save(tmp_path / "rgba.png")
    assert (as_images(tmp_path, Reading(8), "train") == 77).all()


@pytest.mark.parametrize(
    "source,message",
    [
        (torch.empty(0, 3, 8, 8), "train holds no images; pass at least one"),
        ([], "train holds no images; pass at least one"),
        (torch.full((2, 3, 8, 8), 200.0), r"must lie in \[0, 1\], got \[200, 200\]; divide by 255"),
        (torch.full((2, 3, 8, 8), -1.0), r"must lie in \[0, 1\], got \[-1, -1\]; undo the norm"),
        (torch.full((2, 3, 8, 8), torch.nan), "NaN or infinite values in 2 of 2 images; remove"),
        (torch.full((2, 3, 8, 8), torch.inf), "NaN or infinite values in 2 of 2 images; remove"),
        (torch.zeros(2, 1, 8, 8), r"got shape \(2, 1, 8, 8\); crop or pad them"),
        (torch.zeros(2, 3, 8, 9), r"square images .* got shape \(2, 3, 8, 9\)"),
        (torch.zeros(8, 8), r"got shape \(8, 8\)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int64), "uint8 .* or float .*, got torch.int64"),
        (
            [torch.zeros(3, 8, 8), torch.zeros(3, 9, 9)],
            r"one size, got \(3, 8, 8\) and \(3, 9, 9\)",
        ),
    ],
)
def test_bad_images_are_refused_in_words(source: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_images(source, Reading(8), "train")


def test_a_thing_that_is_no_image_is_refused() -> None:
    with pytest.raises(TypeError, match="got dict; pass a tensor"):
        as_images([{}], Reading(8), "train")  # type: ignore[list-item]


def test_wrong_paths_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such folder: '.*nowhere'; check the path"):
        as_images(tmp_path / "nowhere", Reading(8), "train")
    with pytest.raises(FileNotFoundError, match=r"no such image: '.*gone.png'; check the path"):
        as_images([tmp_path / "gone.png"], Reading(8), "train")
    (tmp_path / "file.png").write_text("not an image")
    with pytest.raises(NotADirectoryError, match=r"file.png' is a file, not a folder; pass its"):
        as_images(tmp_path / "file.png", Reading(8), "train")
    with pytest.raises(ValueError, match=r"file.png': it is empty, or not an image; repair"):
        as_images(tmp_path, Reading(8), "train")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no images in '.*empty'; it is searched"):
        as_images(tmp_path / "empty", Reading(8), "train")


GRADIENT = np.linspace(0, 255, 64).astype(np.uint8)[None].repeat(64, 0)  # dark left, bright right


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "bmp", "tif", "tiff", "webp", "PNG"])
def test_every_kind_of_file_is_read(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(GRADIENT).convert("RGB").save(tmp_path / f"x.{suffix}")
    image = as_images(tmp_path, Reading(16), "train")[0].float()
    wanted = torch.linspace(8, 247, 16)
    assert (image.mean((0, 1)) - wanted).abs().max() < 8


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "1", "I;16", "I", "F"])
def test_every_mode_gives_the_same_image(tmp_path: Path, mode: str) -> None:
    grey = Image.fromarray(GRADIENT)
    if mode == "I;16":
        image = Image.fromarray(GRADIENT.astype(np.uint16) * 257)
    elif mode == "I":
        image = Image.fromarray(GRADIENT.astype(np.int32) * 257)
    elif mode == "F":
        image = Image.fromarray(GRADIENT.astype(np.float32) / 255)
    else:
        image = grey.convert(mode)
    image.save(tmp_path / "x.tif")
    image = as_images(tmp_path, Reading(16), "train")[0].float()
    tolerance = 40 if mode == "1" else 6  # black and white are dithered
    assert (image.mean((0, 1)) - torch.linspace(8, 247, 16)).abs().max() < tolerance


def test_transparent_pixels_become_white(tmp_path: Path) -> None:
    Image.new("RGBA", (9, 9), (200, 0, 0, 0)).save(tmp_path / "rgba.png")
    palette = Image.new("P", (9, 9), 0)
    palette.putpalette([200, 0, 0])
    palette.save(tmp_path / "palette.png", transparency=0)
    assert (as_images(tmp_path, Reading(8), "train") == 255).all()


def test_exif_orientation_is_obeyed(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to see it upright
    Image.fromarray(GRADIENT).convert("RGB").save(tmp_path / "x.jpg", exif=exif)
    image = as_images(tmp_path, Reading(16), "train")[0].float()
    assert image[:, 0].mean() < 30 and image[:, -1].mean() > 225  # dark top, bright bottom


@pytest.mark.parametrize("aspect,left,middle", [("stretch", 0, 1), ("crop", 1, 1), ("pad", 0, 1)])
def test_aspect_policies(tmp_path: Path, aspect: str, left: int, middle: int) -> None:
    """A wide image, black but for a white square in its middle."""
    pixels = np.zeros((40, 120, 3), np.uint8)
    pixels[:, 36:84] = 255
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    image = as_images(tmp_path, Reading(12, aspect), "train")[0, 0].float() / 255  # type: ignore[arg-type]
    assert image[6, 0].item() == pytest.approx(left, abs=0.1)
    assert image[6, 6].item() == pytest.approx(middle, abs=0.1)
    if aspect == "pad":
        assert image[0].tolist() == pytest.approx([1 / 3] * 12, abs=0.1)  # its mean colour


def test_python_warns_of_unreadable_files_when_fitting_and_refuses_them_when_scoring(
    tmp_path: Path,
) -> None:
    save(tmp_path / "1.png")
    (tmp_path / "2.png").touch()
    with pytest.warns(UserWarning, match="2.png': it is empty, or not an image"):
        assert len(as_images(tmp_path, Reading(8), "train", [])) == 1
    with pytest.raises(ValueError, match=r"2\.png"):
        as_images(tmp_path, Reading(8), "images")


def test_grey_arrays_are_images_too() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (4, 8, 8), dtype=np.uint8)
    found = as_images(grey, Reading(8), "images")
    assert found.shape == (4, 3, 8, 8) and torch.equal(found[:, 0], found[:, 2])
    assert torch.equal(found, as_images(np.repeat(grey[..., None], 3, 3), Reading(8), "images"))
    assert as_images(list(grey / 255.0), Reading(8), "images").shape == (4, 3, 8, 8)


def test_every_unreadable_file_is_named_and_other_warnings_survive(tmp_path: Path) -> None:
    """Two dozen at once, in several threads."""
    for i in range(6):
        save(tmp_path / f"good{i}.png")
    for i in range(24):
        (tmp_path / f"bad{i}.png").write_bytes(b"x" * i)
    with pytest.warns(UserWarning) as caught:
        as_images(tmp_path, Reading(8), "train", [])
        warnings.warn("mine", stacklevel=1)
    texts = [str(w.message) for w in caught]
    assert sum("cannot read" in text for text in texts) == 24 and "mine" in texts


def test_a_file_is_decoded_only_as_what_we_say_we_read(tmp_path: Path) -> None:
    """An EPS file under another name would start Ghostscript; a GIF is no format of ours."""
    eps = tmp_path / "eps.png"
    eps.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n")
    gif = tmp_path / "gif.png"
    Image.new("L", (8, 8)).save(gif, "GIF")
    for path in (eps, gif):
        with pytest.raises(ValueError, match="it is empty, or not an image"):
            as_images([path], Reading(8), "images")
