"""Folders, tables and COCO's files of captions: their pairs, splits and what cannot be used."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from playbook import UserError
from src.data.multimodal.image_text import ImageText
from src.data.multimodal.pairs import Pairs, number_of
from src.ops.vocabularies import vocabulary_from
from tests.conftest import PUBLISHED, needs
from tests.multimodal.made_up import samples, write_coco, write_folder, write_table

PARTS = ("train", "val", "test")


def set_up(root: Path, **options: Any) -> ImageText:
    data = ImageText(str(root), **{"image_size": 16, "batch_size": 4, **options})
    data.setup("fit")
    return data


def parts_of(data: ImageText) -> dict[str, Pairs]:
    sets: list[Any] = [data.train_set, data.val_set, data.test_set]
    return {name: part for name, part in zip(PARTS, sets, strict=True) if part is not None}


def captions_of(data: ImageText, part: Pairs) -> list[str]:
    vocabulary = vocabulary_from(data.facts["tokenizer"])
    return [vocabulary.decode(part[index][0]["tokens"].tolist()) for index in range(len(part))]


def test_a_folder_of_pictures_and_texts(tmp_path: Path) -> None:
    data = set_up(write_folder(tmp_path / "pairs"), val_share=0.25, test_share=0.25)
    parts = parts_of(data)
    assert {name: len(part) for name, part in parts.items()} == {"train": 12, "val": 6, "test": 6}
    names = [name for part in parts.values() for name in data.ids(part)]
    assert sorted(names) == sorted(f"{name}.png" for name, _, _ in samples())
    captions = {f"{name}.png": caption for name, _, caption in samples()}
    for part in parts.values():
        assert captions_of(data, part) == [captions[name] for name in data.ids(part)]
        assert part.numbers[:, 1].tolist() == [number_of(captions[name]) for name in data.ids(part)]
    assert data.facts["image_shape"] == [3, 16, 16]
    assert data.facts["vocab_size"] == 2 + 6  # padding, unknown, a, three colours and two shapes
    assert data.facts["context_length"] == 64


def test_batches(tmp_path: Path) -> None:
    data = set_up(write_folder(tmp_path / "pairs"))
    inputs, numbers = next(iter(data.train_dataloader()))
    assert inputs["image"].shape == (4, 3, 16, 16)
    assert inputs["tokens"].shape == inputs["mask"].shape == (4, 3)
    assert numbers.shape == (4, 2)


def test_evaluation_equals_reading_and_training_crops(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pairs")
    data = set_up(root, mean=[0.4, 0.5, 0.6], deviation=[0.2, 0.3, 0.4])
    part: Any = data.val_set
    inputs, _ = part[0]
    torch.testing.assert_close(inputs["image"], data.read(root / data.ids(part)[0]))
    image = Image.open(root / data.ids(part)[0]).convert("RGB").resize((20, 16), Image.Resampling.BILINEAR)
    values = torch.from_numpy(np.asarray(image)[:, 2:18].copy()).permute(2, 0, 1) / 255
    expected = (values - torch.tensor([0.4, 0.5, 0.6])[:, None, None]) / torch.tensor([0.2, 0.3, 0.4])[:, None, None]
    torch.testing.assert_close(inputs["image"], expected)
    torch.manual_seed(0)
    crops = [data.augment(data.train_set[0])[0]["image"] for _ in range(2)]  # type: ignore[misc]  # set above
    assert not torch.equal(*crops)
    uncropped = set_up(root, crop=1.0)
    image = uncropped.augment(uncropped.train_set[0])[0]["image"]  # type: ignore[misc]  # as above
    torch.testing.assert_close(image, uncropped.read(root / uncropped.train_set.names[0]))  # type: ignore[attr-defined]


def test_several_captions_of_a_picture_stay_in_one_split(tmp_path: Path) -> None:
    data = set_up(write_table(tmp_path / "table"), val_share=0.25, test_share=0.25)
    parts = parts_of(data)
    assert {name: len(part) for name, part in parts.items()} == {"train": 24, "val": 12, "test": 12}
    files = [set(part.images) for part in parts.values()]
    assert sum(map(len, files)) == len(set().union(*files)) == 24
    for part in parts.values():
        assert len(part.numbers[:, 0].unique()) == len(part) // 2
    assert data.ids(parts["train"])[0].startswith("captions.csv:")


def test_lines_of_a_text_are_captions(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pairs")
    (root / "red-disc-0.txt").write_text("a red disc\n\nsomething round\n")
    data = set_up(root, val_share=0.3)
    names = [name for part in parts_of(data).values() for name in data.ids(part) if name.startswith("red-disc-0")]
    assert names == ["red-disc-0.png", "red-disc-0.png:2"]


def test_folders_of_splits(tmp_path: Path) -> None:
    for name in ("train", "validation", "test"):
        write_folder(tmp_path / "pairs" / name)
    data = set_up(tmp_path / "pairs")
    assert all(len(part) == 24 for part in parts_of(data).values())
    assert data.ids(data.val_set)[0] == "validation/blue-disc-0.png"


def test_tables_of_splits_and_a_single_one(tmp_path: Path) -> None:
    root = write_table(tmp_path / "table")
    data = set_up(root / "captions.csv")
    assert sum(map(len, parts_of(data).values())) == 48
    for name in ("train", "val"):
        shutil.copy(root / "captions.csv", root / f"{name}.csv")
    (root / "captions.csv").unlink()
    data = set_up(root)
    assert [*parts_of(data)] == ["train", "val"]
    with pytest.raises(UserError, match="found no test data"):
        data.test_dataloader()


def test_columns_of_other_names(tmp_path: Path) -> None:
    root = write_table(tmp_path / "table")
    table = root / "captions.csv"
    table.write_text(
        table.read_text().replace("image,caption", "bild,satz").replace(",", ";", 1).replace(".png,", ".png;")
    )
    data = set_up(root, image_column="bild", caption_column="satz", separator=";")
    assert sum(map(len, parts_of(data).values())) == 48
    with pytest.raises(
        UserError, match=r"captions\.csv:2: expected a column image, path.*got bild, satz.*image_column"
    ):
        set_up(root, separator=";")


def test_coco(tmp_path: Path) -> None:
    root = write_coco(tmp_path / "coco")
    data = set_up(root)
    parts = parts_of(data)
    assert {name: len(part) for name, part in parts.items()} == {"train": 36, "val": 12}
    assert data.ids(parts["train"])[:2] == ["train2017/000000000000.jpg", "train2017/000000000000.jpg:2"]
    assert captions_of(data, parts["val"])[:2] == ["a red square", "a red square on white"]
    single = set_up(root / "annotations" / "captions_val2017.json", val_share=0.5, test_share=0.0, on_error="skip")
    assert sum(map(len, parts_of(single).values())) == 12


@needs("coco_mini")
def test_published_coco() -> None:
    data = set_up(PUBLISHED / "coco_mini")
    parts = parts_of(data)
    assert {name: len(part) for name, part in parts.items()} == {"train": 70, "val": 95}
    assert len(parts["train"].numbers[:, 0].unique()) == 14
    inputs, _ = parts["val"][0]
    assert inputs["image"].isfinite().all()


def without_text(root: Path) -> None:
    (root / "red-disc-0.txt").unlink()


def empty_text(root: Path) -> None:
    (root / "red-disc-0.txt").write_text(" \n")


def two_pictures(root: Path) -> None:
    shutil.copy(root / "red-disc-0.png", root / "red-disc-0.webp")


PROBLEMS: dict[Callable[[Path], None], str] = {
    without_text: r"red-disc-0\.png: has no caption, expected red-disc-0\.txt beside it; --data\.on_error skip leaves "
    r"such rows out \(1 of 24\)",
    empty_text: r"red-disc-0\.txt: is empty, expected a caption",
    two_pictures: r"red-disc-0\.webp: red-disc-0\.png has the same name",
}


@pytest.mark.parametrize("change", PROBLEMS)
def test_pictures_that_cannot_be_used(tmp_path: Path, change: Callable[[Path], None]) -> None:
    root = write_folder(tmp_path / "pairs")
    change(root)
    with pytest.raises(UserError, match=PROBLEMS[change]):
        set_up(root)
    data = set_up(root, on_error="skip")
    assert len(data.skipped_samples) == 1
    assert sum(map(len, parts_of(data).values())) == (24 if change is two_pictures else 23)


def test_a_text_without_a_picture_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folder(tmp_path / "pairs")
    (root / "alone.txt").write_text("nothing")
    (root / "clip.mp4").write_bytes(b"")
    data = set_up(root)
    assert data.counts == {"left_out_texts": 1, "left_out_files": 1}
    err = capsys.readouterr().err
    assert "left out 1 file (alone.txt) without a picture of the same name\n" in err
    assert "1 .mp4" in err


def test_a_long_caption_is_truncated_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folder(tmp_path / "pairs")
    data = set_up(root, context_length=2)
    assert data.counts["cut_captions"] == 24
    assert "--data.context_length 2: truncated 24 longer captions, such as that of" in capsys.readouterr().err
    assert all(len(part[0][0]["tokens"]) == 2 for part in parts_of(data).values())


def test_a_caption_with_an_unknown_character(tmp_path: Path) -> None:
    data = ImageText(str(write_folder(tmp_path / "pairs")), image_size=16, vocabulary="characters")
    data.facts = {"tokenizer": {"kind": "characters", "characters": "aedrisc "}}
    with pytest.raises(UserError, match=r"\.png: vocabulary: the character 'b' in 'a blue disc' is not among the 8"):
        data.setup("test")


def test_an_unreadable_picture_is_named(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pairs")
    (root / "red-disc-0.png").write_bytes((root / "red-disc-0.png").read_bytes()[:200])
    with pytest.raises(
        UserError, match=r"1 of 19 train samples cannot be loaded, such as train sample \d+ \(.*red-disc-0"
    ):
        set_up(root, check_files=True, val_share=0.1, test_share=0.1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image,caption\nnone.png,a\n", r"captions\.csv:2: .*none\.png: no such picture"),
        ("image,caption\nred-disc-0.png,\n", r"captions\.csv:2: the caption is empty"),
        ("image,caption\n,a red disc\n", r"captions\.csv:2: the image is empty"),
        ("image,caption\ncaptions.csv,a\n", r"captions\.csv: expected a picture of \.avif"),
        (
            "image,words\nred-disc-0.png,a\n",
            r"captions\.csv:2: expected a column caption, text.*caption_column names it",
        ),
        ("image,caption\nred-disc-0.png\n", r"captions\.csv:2: expected 2 fields"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path: Path, content: str, message: str) -> None:
    root = write_table(tmp_path / "table")
    (root / "captions.csv").write_text(content)
    with pytest.raises(UserError, match=message):
        set_up(root)


def test_coco_that_cannot_be_used(tmp_path: Path) -> None:
    root = write_coco(tmp_path / "coco")
    file = root / "annotations" / "captions_train2017.json"
    content = json.loads(file.read_text())
    changed = {**content, "annotations": [*content["annotations"][2:], {"image_id": 999, "caption": "a"}]}
    file.write_text(json.dumps(changed))
    with pytest.raises(UserError, match=r"captions_train2017\.json: a caption of image 999, which is not listed"):
        set_up(root)
    data = set_up(root, on_error="skip")
    assert len(data.skipped_samples) == 2, "the picture that has lost its captions, too"
    (root / "train2017/000000000003.jpg").unlink()
    assert len(set_up(root, on_error="skip").skipped_samples) == 3
    file.write_text("{}")
    with pytest.raises(UserError, match="expected COCO's lists `images` and `annotations`"):
        set_up(root)
    file.rename(file.with_name("captions_other.json"))
    with pytest.raises(UserError, match=r"expected captions_train\*\.json, got captions_other\.json"):
        set_up(root)


def test_a_root_without_pairs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        set_up(tmp_path / "none")
    with pytest.raises(UserError, match=r"it holds nothing"):
        set_up(tmp_path)
    (tmp_path / "a.pdf").write_bytes(b"")
    with pytest.raises(UserError, match=r"expected a folder, or a file of \.csv"):
        set_up(tmp_path / "a.pdf")


def test_too_few_pictures_for_the_shares(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pairs")
    with pytest.raises(UserError, match=r"--data\.val_share: 0\.01 of 24 pictures leaves none for val"):
        set_up(root, val_share=0.01, test_share=0.0)
    with pytest.raises(UserError, match=r"--data\.test_share: 0\.01 of 24 pictures leaves none for test"):
        set_up(root, test_share=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 0}, "image_size: expected at least 1 pixel, got 0"),
        ({"channels": 4}, "channels: expected 1 or 3, got 4"),
        ({"crop": 0.0}, r"crop: expected a share in \(0, 1\], got 0.0"),
        ({"mean": [0.5]}, "mean: expected 3 values, one a channel"),
        ({"deviation": [0.5, 0.0, 1.0]}, "deviation: expected values above 0"),
        ({"context_length": 0}, "context_length: expected at least 1 token, got 0"),
        ({"vocabulary": "letters"}, "vocabulary: expected one of words, characters, bytes, bpe, got letters"),
        ({"min_count": 0}, "min_count: expected at least 1, got 0"),
        ({"val_share": 1.0}, "val_share: expected a share"),
        ({"test_share": 0.95}, "test_share: expected a share"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageText("pairs", **options)


def test_the_vocabulary_of_a_checkpoint_stays(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pairs")
    first = set_up(root)
    again = ImageText(str(root), image_size=16)
    again.facts = {"tokenizer": {"kind": "words", "words": ["disc", "a"]}}
    again.setup("test")
    assert again.facts["vocab_size"] == 4
    assert first.facts["vocab_size"] == 8
    again.prepare_read()
    again.setup("test")  # asked for every stage, read once
    assert again.preprocessing()["steps"][0] == {"cover": [16, 16]}
    other = ImageText(str(root), image_size=16, vocabulary="bytes")
    other.facts = dict(first.facts)
    with pytest.raises(UserError, match=r"--data\.vocabulary bytes: the checkpoint has 8 words"):
        other.setup("test")
