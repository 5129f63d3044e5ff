"""What the pixels of masks mean, and the options that they suggest."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from playbook.errors import UserError
from src.data.vision.mask_values import MaskValues, consecutive, suggest_for
from src.data.vision.masks import MaskFolder
from tests.data.vision.test_masks import PLAIN, made, regions, samples, write

PAINT = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0]], dtype=np.uint8)  # colours of classes in masks


def counted(root: Path, **options: Any) -> MaskFolder:
    """Data whose number of classes is not given."""
    data = MaskFolder(str(root), image_size=(40, 60), val_share=0.5, **PLAIN, **options)
    data.setup("fit")
    return data


def paint(root: Path, mode: str = "RGB", colours: np.ndarray = PAINT) -> None:
    """Masks of these colours in place of those of values."""
    for file in sorted((root / "train/masks").iterdir()):
        mask = Image.fromarray(colours[np.asarray(Image.open(file))])
        mask = mask.quantize(3, dither=Image.Dither.NONE) if mode == "P" else mask.convert(mode)
        mask.save(file)


def test_the_number_of_classes_comes_from_the_masks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "train", 2)
    data = counted(tmp_path)
    assert (data.num_classes, data.facts["classes"]) == (3, ["0", "1", "2"])
    assert "ignore_index" not in data.facts
    assert capsys.readouterr().err == "data: masks hold 0, 1, 2: 3 classes (--data.num_classes)\n"
    again = MaskFolder(str(tmp_path), image_size=(40, 60), val_share=0.5, **PLAIN)
    again.facts = {"classes": ["a", "b", "c", "d"]}
    again.setup("test")
    assert again.num_classes == 4, "the checkpoint's"


def test_values_and_names_are_counted(tmp_path: Path) -> None:
    write(tmp_path, "train", 2, values=[0, 255, 7])
    data = counted(tmp_path, values=[0, 7, 255])
    assert samples(data.val_dataloader())[0][1].unique().tolist() == [0, 1, 2]
    assert counted(tmp_path, values=[0, 7], ignore_index=255).facts["classes"] == ["0", "1"]
    assert counted(tmp_path, class_names=["a", "b", "c"], values=[0, 7, 255]).facts["classes"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("values", "ignore_index", "ignored"), [([0, 1, 255], 255, 255), ([1, 2, 0], 0, 255), ([0, 1, 9], 9, 9)]
)
def test_the_ignored_class_is_a_fact(tmp_path: Path, values: list[int], ignore_index: int, ignored: int) -> None:
    write(tmp_path, "train", 2, values=values)
    of_classes = sorted(set(values) - {ignore_index})
    data = counted(tmp_path, values=of_classes, ignore_index=ignore_index)
    assert data.facts["ignore_index"] == ignored
    assert samples(data.val_dataloader())[0][1].unique().tolist() == [0, 1, ignored]


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        (
            {0, 255},
            "see --data.values [0,255] for two classes, or --data.ignore_index 255 if such pixels have no class",
        ),
        ({255}, "see --data.values [0,255] for two classes, or --data.ignore_index 255 if such pixels have no class"),
        ({0, 1, 255}, "see --data.num_classes 2 and --data.ignore_index 255"),
        ({*range(21), 255}, "see --data.num_classes 21 and --data.ignore_index 255"),
        ({0, 1, 3, 4}, "see --data.num_classes 5"),
        ({0}, "see --data.num_classes 2"),
        ({0, 100, 200}, "see --data.num_classes 3 and --data.values [0,100,200]"),
        (set(range(0, 200, 3)), "see --data.num_classes; masks hold 67 values from 0 to 198"),
    ],
)
def test_values_suggest_options(values: set[int], advice: str) -> None:
    """milesial/Pytorch-UNet#375, open-mmlab/mmsegmentation#1609."""
    assert suggest_for(values) == advice


def test_few_of_many_numbers_are_no_classes() -> None:
    assert [consecutive(values) for values in ([], [0], [0, 1], [1, 2], [0, 5, 9], [0, 254])] == [0, 2, 2, 3, 0, 0]


@pytest.mark.parametrize(
    ("values", "held"), [([0, 255, 255], "0, 255; see --data.values [0,255] "), ([0, 1, 255], "0, 1, 255; see --data")]
)
def test_masks_that_do_not_tell_end_before_training(tmp_path: Path, values: list[int], held: str) -> None:
    write(tmp_path, "train", 2, values=values)
    with pytest.raises(UserError) as caught:
        counted(tmp_path)
    assert str(caught.value).startswith(f"--data.root: masks in {tmp_path.as_posix()} hold {held}")


def test_a_wrong_number_is_corrected_by_all_masks(tmp_path: Path) -> None:
    """One mask alone would suggest [0,255]."""
    write(tmp_path, "train", 4, values=[0, 1, 255])
    Image.fromarray((regions(0) > 1).astype(np.uint8) * 255).save(tmp_path / "train/masks/00.png")
    data = made(tmp_path, num_classes=2)
    with pytest.raises(UserError, match=r"contains 255, expected only 0, 1; see --data.num_classes 2 and --data.ign"):
        data.train_set[[image.name for image, _ in data.train_set.pairs].index("00.png")]  # type: ignore[attr-defined]


def test_an_unreadable_mask_tells_nothing(tmp_path: Path) -> None:
    write(tmp_path, "train", 4)
    (tmp_path / "train/masks/00.png").write_text("no mask")
    assert counted(tmp_path).num_classes == 3
    for file in (tmp_path / "train/masks").iterdir():
        file.write_text("no mask")
    with pytest.raises(UserError, match=r"hold no value; see --data.num_classes$"):
        counted(tmp_path)


# coloured masks


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA"])
def test_grey_in_three_channels_is_grey(tmp_path: Path, mode: str) -> None:
    write(tmp_path, "train", 4)
    paint(tmp_path, mode, np.array([[k] * 3 for k in range(3)], dtype=np.uint8))
    data = counted(tmp_path)
    assert data.num_classes == 3
    for _, mask in samples(data.val_dataloader()):
        assert mask.unique().tolist() == [0, 1, 2]


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
def test_colours_become_classes(tmp_path: Path, mode: str) -> None:
    write(tmp_path, "train", 4)
    reference = samples(counted(tmp_path).val_dataloader())
    paint(tmp_path, mode)
    found = samples(counted(tmp_path, colours=PAINT.tolist()).val_dataloader())
    for (_, mask), (_, expected) in zip(found, reference, strict=True):
        assert mask.tolist() == expected.tolist()
    data = counted(tmp_path, colours=PAINT[:2].tolist(), ignore_colour=PAINT[2].tolist())
    assert (data.facts["classes"], data.facts["ignore_index"]) == (["0", "1"], 255)
    assert samples(data.val_dataloader())[0][1].unique().tolist() == [0, 1, 255]


def test_coloured_masks_suggest_their_colours(tmp_path: Path) -> None:
    write(tmp_path, "train", 4)
    paint(tmp_path)
    listed = r"--data.colours \[\[0,0,0\],\[0,128,0\],\[128,0,0\]\] names the colour of each class"
    with pytest.raises(UserError, match=rf"^--data.root: masks in \S+ hold colours; {listed}"):
        counted(tmp_path)
    with pytest.raises(UserError, match=rf"0\d.png: expected palette or grey values, got RGB; {listed}"):
        made(tmp_path).train_set[0]
    with pytest.raises(
        UserError, match=r"contains \[0, 128, 0\], expected only \[0, 0, 0\], \[128, 0, 0\]; --data.colo"
    ):
        counted(tmp_path, colours=PAINT[:2].tolist()).train_set[0]


def test_smoothed_colours_are_told(tmp_path: Path) -> None:
    write(tmp_path, "train", 2)
    paint(tmp_path)
    for file in (tmp_path / "train/masks").iterdir():
        Image.open(file).resize((30, 20), Image.Resampling.BICUBIC).resize((60, 40), Image.Resampling.BICUBIC).save(
            file
        )
    with pytest.raises(UserError, match=r"they have \d+ colours; expected one for each class, without smoothing"):
        counted(tmp_path)


def test_other_modes_have_no_values() -> None:
    mask = Image.new("F", (4, 4))
    with pytest.raises(UserError, match=r"a.tif: expected palette or grey values, got F$"):
        MaskValues({0: 0, 1: 1})(mask, Path("a.tif"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colours": [[0, 0], [1, 1, 1]]}, r"colours: expected red, green and blue from 0 to 255, got \[0, 0\]"),
        ({"colours": [[0, 0, 256], [1, 1, 1]]}, r"colours: expected red, green and blue .*, got \[0, 0, 256\]"),
        ({"colours": [[1, 1, 1], [1, 1, 1]]}, "colours: expected 2 different colours, got 1"),
        ({"colours": PAINT.tolist(), "num_classes": 2}, "colours: expected 2 different colours, got 3"),
        ({"colours": PAINT.tolist(), "ignore_colour": [0, 0, 0]}, r"ignore_colour: expected a colour of no class"),
        ({"colours": PAINT.tolist(), "values": [0, 1, 2]}, "values: expected none with colours"),
        (
            {"colours": PAINT.tolist(), "ignore_index": 255},
            "ignore_index: expected none with colours; see ignore_colour",
        ),
        ({"ignore_colour": [0, 0, 0]}, "ignore_colour: needs colours"),
        ({"ignore_index": 2**16}, "ignore_index: expected a value of no class from 0 to 65535"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskFolder("data", **options)
