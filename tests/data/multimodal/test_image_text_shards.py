"""Shards of pictures and captions: samples, splits, workers and what cannot be used."""

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

from playbook import UserError
from playbook.testing.command import Cli
from src.data.multimodal.image_text import ImageText
from src.data.multimodal.image_text_shards import ImageTextShards
from src.ops.vocabularies import vocabulary_from
from tests.multimodal.made_up import add, encoded, picture, samples, write_folder, write_shards


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def set_up(root: Path, **options: Any) -> Any:
    data = ImageTextShards(str(root), **{"image_size": 16, "batch_size": 4, **options})
    data.prepare_data()
    data.setup("fit")
    return data


def test_samples_equal_those_of_a_folder(tmp_path: Path) -> None:
    data = set_up(write_shards(tmp_path / "shards"), val_share=0.25, test_share=0.25)
    folder: Any = ImageText(str(write_folder(tmp_path / "pairs")), image_size=16, val_share=0.25, test_share=0.25)
    folder.setup("fit")
    assert [len(part) for part in (data.train_set, data.val_set, data.test_set)] == [12, 6, 6]
    known = {}
    for part in (folder.val_set, folder.test_set):
        known |= {Path(name).stem: part[index] for index, name in enumerate(part.names)}
    names = {}
    for part in (data.val_set, data.test_set):
        names |= {name.rpartition("/")[2]: part[index] for index, name in enumerate(data.ids(part))}
    captions_of_files = {name: caption for name, _, caption in samples()}
    common = known.keys() & names.keys()
    assert common
    for name in common:
        torch.testing.assert_close(names[name][0]["image"], known[name][0]["image"])
        captions = [
            vocabulary_from(source.facts["tokenizer"]).decode(sample[name][0]["tokens"].tolist())
            for source, sample in ((data, names), (folder, known))
        ]
        assert captions[0] == captions[1] == captions_of_files[name]
        assert names[name][1][1] == known[name][1][1]
    assert set(data.ids(data.val_set)) <= {
        f"{number // 8:03d}.tar/{name}" for number, (name, *_) in enumerate(samples())
    }


@pytest.mark.slow
def test_workers_read_the_same_batches(tmp_path: Path) -> None:
    root = write_shards(tmp_path / "shards")
    batches = [list(set_up(root, num_workers=number).train_dataloader()) for number in (0, 2)]
    for one, other in zip(*batches, strict=True):
        assert torch.equal(one[0]["image"], other[0]["image"])
        assert torch.equal(one[1], other[1])


def test_splits_by_name_and_by_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_shards(tmp_path / "shards")
    for number, name in enumerate(("train-0", "val-0", "test-0")):
        (root / f"{number:03d}.tar").rename(root / f"{name}.tar")
    by_name = set_up(root)
    assert [len(part) for part in (by_name.train_set, by_name.val_set, by_name.test_set)] == [8, 8, 8]
    for name in ("train", "validation"):
        (root / name).mkdir()
    (root / "train-0.tar").rename(root / "train/0.tar")
    (root / "val-0.tar").rename(root / "validation/0.tar")
    (root / "test-0.tar").rename(root / "other.tar")
    by_folder = set_up(root)
    assert [len(by_folder.train_set), len(by_folder.val_set), by_folder.test_set] == [8, 8, None]
    assert by_folder.counts["left_out_shards"] == 1
    assert "left out 1 file (other.tar), not named after a split" in capsys.readouterr().err
    one = set_up(root / "other.tar")
    assert len(one.train_set) + len(one.val_set) + len(one.test_set) == 8


def one_shard(root: Path, files: dict[str, bytes]) -> Path:
    """A shard with three whole samples before the files."""
    root.mkdir()
    with tarfile.open(root / "a.tar", "w") as archive:
        for number in range(3):
            add(archive, f"whole{number}.png", encoded(picture("red", "disc", number)))
            add(archive, f"whole{number}.txt", b"a red disc")
        for name, content in files.items():
            add(archive, name, content)
    return root


PICTURE = encoded(picture("blue", "disc", 0))
PROBLEMS: list[tuple[dict[str, bytes], str]] = [
    ({"7.png": PICTURE}, r"a\.tar/7: has no caption, expected a \.txt or \.json beside png"),
    ({"7.txt": b"a blue disc"}, r"a\.tar/7: has no picture, but txt"),
    ({"7.png": PICTURE, "7.txt": b" "}, r"a\.tar/7: its caption is empty"),
    ({"7.png": PICTURE, "7.txt": b"\xff\xfe"}, r"a\.tar/7: its caption cannot be read: 'utf-8' codec"),
    ({"7.png": PICTURE, "7.json": b"{}"}, r"a\.tar/7: its \.json has no caption or text"),
    ({"7.png": PICTURE, "7.json": b"[1]"}, r"a\.tar/7: its caption cannot be read: 'list'"),
    ({"7.png": PICTURE, "7.json": json.dumps({"caption": 5}).encode()}, r"its \.json has no caption or text"),
]


@pytest.mark.parametrize(("files", "message"), PROBLEMS)
def test_samples_that_cannot_be_used(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    root = one_shard(tmp_path / "shards", files)
    with pytest.raises(UserError, match=message):
        set_up(root, val_share=0.3, test_share=0.0)
    data = set_up(root, val_share=0.3, test_share=0.0, on_error="skip")
    assert len(data.train_set) + len(data.val_set) == 3
    assert data.skipped_samples == {"a.tar/7"}


def test_a_picture_that_cannot_be_read_is_named_with_its_shard(tmp_path: Path) -> None:
    root = one_shard(tmp_path / "shards", {"7.png": PICTURE[:60], "7.txt": b"a blue disc"})
    with pytest.raises(UserError, match=r"1 of \d (train|val) samples cannot be loaded, such as .*a\.tar/7\.png"):
        set_up(root, val_share=0.3, test_share=0.0, check_files=True)


@pytest.mark.slow
def test_a_truncated_shard_ends_the_run_in_one_line(cli: Cli) -> None:
    root = write_shards(Path("shards"))
    shard = root / "001.tar"
    os.truncate(shard, shard.stat().st_size // 2)
    options = ("--data", "ImageTextShards", "--data.root", "shards", "--model", "Contrastive", "--model.net", "CLIP")
    done = cli("fit", *options, "--data.on_error", "skip")
    assert done.code == 2
    [line] = done.err.strip().splitlines()
    assert line.startswith("error: --data.root: shards/001.tar: is truncated in ")


def test_a_root_without_shards(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        set_up(tmp_path / "none")
    (tmp_path / "0.tar.gz").write_bytes(b"")
    with pytest.raises(UserError, match=r"it holds 0\.tar\.gz; unpack compressed ones"):
        set_up(tmp_path)
    (tmp_path / "val-0.tar").write_bytes(bytes(1024))
    with pytest.raises(UserError, match="expected tar files in it or in its folder train"):
        set_up(tmp_path)
    with pytest.raises(UserError, match=r"val-0\.tar: expected pictures with captions, it holds no files"):
        set_up(tmp_path / "val-0.tar")


def test_reading_and_preprocessing(tmp_path: Path) -> None:
    root = write_shards(tmp_path / "shards")
    data = set_up(root, channels=1)
    picture("red", "disc", 0).save(tmp_path / "a.png")
    data.prepare_read()
    inputs, numbers = data.unlabelled(tmp_path / "a.png")
    assert inputs["image"].shape == (1, 16, 16)
    assert numbers.tolist() == [-1, -1]
    assert data.preprocessing()["mean"] == [0.5]
