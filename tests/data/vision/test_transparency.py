"""Transparent pixels: laid on white in training, predictions and exported models; hidden colours do not count."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from playbook.deploy.runtime.images import read_image as read_exported
from src.data.vision.channels import ChannelReader
from src.data.vision.image_folder import ImageFolder
from src.data.vision.images import read_resized, reading_of
from tests.data.vision.test_image_folder import made, write_images


def layered(hidden: tuple[int, int, int], mode: str) -> Image.Image:
    """A disc of one colour whose transparent surroundings hide another."""
    rows, columns = np.mgrid[:24, :30]
    alpha = np.where((rows - 12) ** 2 + (columns - 15) ** 2 < 80, 255, 0).astype(np.uint8)
    alpha[0] = 128
    colours = np.where(alpha[..., None] == 255, np.array([200, 60, 20]), np.array(hidden)).astype(np.uint8)
    colours[0] = (10, 20, 30)
    image = Image.fromarray(np.dstack([colours, alpha]), "RGBA")
    if mode == "P":
        image = Image.fromarray((alpha == 255).astype(np.uint8)).convert("P")
        image.putpalette([*hidden, 200, 60, 20])
        image.info["transparency"] = 0
        return image
    return image.convert(mode)


@pytest.mark.parametrize("mode", ["RGBA", "P", "LA"])
@pytest.mark.parametrize("channels", [1, 3])
def test_hidden_colours_do_not_count(
    tmp_path: Path, mode: str, channels: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """onepanelio/onepanel#819: colours that nobody sees decided the class."""
    values = []
    for number, hidden in enumerate([(255, 0, 255), (0, 255, 0)]):
        file = tmp_path / f"{number}.png"
        layered(hidden, mode).save(file)
        reader = ChannelReader(channels)
        found = reader.tensor(file).numpy()
        assert (found[:, 23, 29] == 255).all()
        told = f"data: {file.as_posix()} has transparent pixels: they are white, in all such images\n"
        assert capsys.readouterr().err == told
        reader.tensor(file)
        assert not capsys.readouterr().err, "said once"
        for bits in (8, 16):
            plan = reading_of(channels, [], bits=bits)
            assert np.array_equal(read_exported(file, plan).inputs["image"], found.astype(np.float32))
        assert np.array_equal(read_resized(file, (channels, 24, 30)).numpy(), found)
        values.append(found)
    assert np.array_equal(*values)


def test_opaque_pixels_stay_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 30, 3), dtype=np.uint8)
    Image.fromarray(np.dstack([pixels, np.full((24, 30), 255, np.uint8)]), "RGBA").save(tmp_path / "a.png")
    assert np.array_equal(ChannelReader(3).tensor(tmp_path / "a.png").numpy().transpose(1, 2, 0), pixels)
    assert np.array_equal(
        read_exported(tmp_path / "a.png", reading_of(3, [])).inputs["image"].transpose(1, 2, 0), pixels
    )
    assert not capsys.readouterr().err


def test_a_checkpoint_without_a_background_reads_as_it_did(tmp_path: Path) -> None:
    write_images(tmp_path / "train", {"cat": 4, "dog": 4})
    data = made(tmp_path, val_share=0.5)
    assert data.facts["background"] == "white"
    layered((255, 0, 255), "RGBA").save(tmp_path / "a.png")
    older = ImageFolder(str(tmp_path), image_size=16)
    older.facts = {"classes": ["cat", "dog"]}
    newer = ImageFolder(str(tmp_path), image_size=16)
    newer.facts = {"classes": ["cat", "dog"], "background": "white"}
    plans: list[Any] = [data.preprocessing() for data in (older, newer)]
    assert [plan.get("background") for plan in plans] == [None, "white"]
    for data, plan in zip((older, newer), plans, strict=True):
        found = data.read(tmp_path / "a.png").numpy()
        np.testing.assert_allclose(read_exported(tmp_path / "a.png", plan).inputs["image"], found, atol=1e-6)
    assert not np.array_equal(older.read(tmp_path / "a.png"), newer.read(tmp_path / "a.png"))


def test_16_bits_are_laid_on_white(tmp_path: Path) -> None:
    imagecodecs = pytest.importorskip("imagecodecs")
    pixels = np.full((8, 9, 4), 1000, dtype=np.uint16)
    pixels[:4, :, 3] = 0
    pixels[4:, :, 3] = 2**16 - 1
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(pixels))
    found = ChannelReader(3).tensor(tmp_path / "a.png").numpy()
    assert (found[:, :4] == 1).all()
    assert found[:, 4:] == pytest.approx(1000 / (2**16 - 1))
    plan = {**reading_of(3, [], bits=16)}
    np.testing.assert_allclose(read_exported(tmp_path / "a.png", plan).inputs["image"], found, atol=1e-6)
    dropped = read_exported(tmp_path / "a.png", {**plan, "background": None}).inputs["image"]
    assert dropped == pytest.approx(1000 / (2**16 - 1))
