"""The help of images, boxes and masks tells units and orders."""

import pytest

from playbook.testing.command import Cli
from tests.test_help import texts


@pytest.mark.parametrize("name", ["COCODetection", "VOCDetection"])
def test_units_and_order_are_told(cli: Cli, name: str) -> None:
    words = texts(cli("fit", "--data.help", name).out, "data")
    assert "[H, W]" in words["image_size"]
    assert "pixels" in words["image_size"]
    assert "[0, 1]" in words["colour"]
    assert "at least 1" in words["zoom_out"]


@pytest.mark.parametrize("name", ["MaskFolder", "OxfordPets"])
def test_channels_are_told(cli: Cli, name: str) -> None:
    words = texts(cli("fit", "--data.help", name).out, "data")
    assert all("[R, G, B]" in words[option] for option in ("mean", "deviation"))
    assert "classes" not in words, "given by the class itself"
