"""Masks beside images: against Pillow's own resizing, on sets that each test writes, some of them broken."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from lightning.pytorch import Trainer
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import OxfordIIITPet
from torchvision.transforms import v2

from playbook.data.loader import DataError
from playbook.testing.command import UNSAVED
from src.data.vision.images import read_image
from src.data.vision.masks import MaskFolder
from src.data.vision.pets import OxfordPets
from src.nets.vision.unet import UNet
from src.tasks.segmentation import Segmentation
from tests.conftest import PUBLISHED, needs

REAL = PUBLISHED / "oxford_pets"
COLOURS = np.array([[30, 60, 200], [220, 40, 90], [120, 200, 20]], dtype=np.uint8)  # of the classes 0, 1, 2
PLAIN: dict[str, Any] = {"mean": [0, 0, 0], "deviation": [1, 1, 1], "num_workers": 0, "batch_size": 4}
Pixels = tuple[Tensor, Tensor]


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")


def regions(index: int, height: int = 40, width: int = 60) -> np.ndarray:
    """A mask of three classes: a ground, a rectangle on its left and a smaller one on its right."""
    mask = np.zeros((height, width), dtype=np.uint8)
    mask[4 : 30 - index % 5, 3 : 25 + index % 3] = 1
    mask[12:36, 40:56] = 2
    return mask


def write(root: Path, split: str, num: int, values: list[int] | None = None) -> None:
    """Photos in the colours of their classes, and their masks."""
    for kind in ("images", "masks"):
        (root / split / kind).mkdir(parents=True)
    for index in range(num):
        mask = regions(index)
        Image.fromarray(COLOURS[mask]).save(root / split / "images" / f"{index:02}.png")
        stored = mask if values is None else np.array(values, dtype=np.uint8)[mask]
        Image.fromarray(stored).save(root / split / "masks" / f"{index:02}.png")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "train", 10)
    write(tmp_path, "val", 3)
    write(tmp_path, "test", 4)
    return tmp_path


def made(root: Path, **options: Any) -> MaskFolder:
    data = MaskFolder(str(root), **{"num_classes": 3, "image_size": (20, 24), **PLAIN, **options})
    data.setup("fit")
    return data


def samples(loader: DataLoader) -> list[Pixels]:
    return [pair for image, mask in loader for pair in zip(image, mask, strict=True)]


def classes_of(image: Tensor) -> Tensor:
    """The class whose colour each pixel is nearest to."""
    distance = (image[None] - torch.from_numpy(COLOURS)[:, :, None, None] / 255).square().sum(1)  # (3, H, W)
    return distance.argmin(0)


# what samples are


def test_evaluation_sees_the_whole_image_resized(root: Path) -> None:
    data = made(root, image_size=(17, 29))
    found = samples(data.test_dataloader())
    assert len(found) == 4
    for index, (image, mask) in enumerate(found):
        file = read_image(root / f"test/images/{index:02}.png")
        expected = v2.functional.resize(v2.functional.pil_to_tensor(file), [17, 29], antialias=True)
        torch.testing.assert_close(image, expected / 255)
        small = Image.fromarray(regions(index)).resize((29, 17), Image.Resampling.NEAREST)
        assert mask.dtype == torch.int64
        assert np.array_equal(mask.numpy(), np.array(small))


def test_images_are_normalised_by_channel(root: Path) -> None:
    plain, normalised = made(root), made(root, mean=[0.1, 0.2, 0.3], deviation=[0.5, 0.25, 2.0])
    mean, deviation = torch.tensor([[0.1, 0.2, 0.3], [0.5, 0.25, 2.0]])[:, :, None, None]
    for (image, _), (other, _) in zip(
        samples(plain.val_dataloader()), samples(normalised.val_dataloader()), strict=True
    ):
        torch.testing.assert_close(other, (image - mean) / deviation)


def test_imagenet_normalises_when_nothing_is_said(root: Path) -> None:
    data = MaskFolder(str(root), num_classes=3, image_size=[40, 60])
    data.setup("fit")
    image, _ = data.val_set[0]
    expected = (COLOURS[0] / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    assert image[:, 0, 0].tolist() == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize("mode", ["L", "P", "I;16", "1"])
def test_masks_may_be_grey_or_of_a_palette(root: Path, mode: str) -> None:
    mask = regions(0).clip(max=1)
    picture = Image.fromarray(mask.astype(np.uint16)) if mode == "I;16" else Image.fromarray(mask)
    if mode == "P":
        picture.putpalette([9, 9, 9, 200, 10, 10])  # the colours must not matter
    if mode == "1":
        picture = Image.fromarray(mask.astype(bool))
    picture.save(root / "val/masks/00.png")
    with Image.open(root / "val/masks/00.png") as stored:
        assert stored.mode == mode
    _, found = made(root, num_classes=3, image_size=(40, 60)).val_set[0]
    assert np.array_equal(found.numpy(), mask)


def test_values_become_classes_and_one_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, "train", 2, values=[255, 7, 100])
    data = made(tmp_path, num_classes=2, values=[7, 255], ignore_index=100, image_size=(40, 60), val_share=0.5)
    for part in (data.train_set, data.val_set):
        _, mask = part[0]
        assert mask.unique().tolist() == [0, 1, 100]
        assert mask[0, 0] == 1
        assert mask[10, 10] == 0
        assert mask[20, 50] == 100


def test_an_ignored_value_never_becomes_a_class(tmp_path: Path) -> None:
    """0 for what has no class, and classes from 1 on: as usual a layout as any."""
    write(tmp_path, "train", 4, values=[0, 1, 2])
    data = MaskFolder(str(tmp_path), num_classes=2, values=[1, 2], ignore_index=0, image_size=(40, 60), **PLAIN)
    data.setup("fit")
    _, mask = samples(data.val_dataloader())[0]
    assert mask.unique().tolist() == [0, 1, 255]
    assert (mask == 255).sum() > (mask == 0).sum()
    with pytest.raises(ValueError, match="ignore_index: expected at least 300 as num_classes, got 0"):
        MaskFolder(str(tmp_path), num_classes=300, values=range(1, 301), ignore_index=0)


def test_names_are_matched_whatever_the_kind_of_image(root: Path) -> None:
    picture = read_image(root / "val/images/01.png")
    picture.save(root / "val/images/01.JPG", quality=95)
    (root / "val/images/01.png").unlink()
    (root / "val/images/notes.txt").write_text("no image")
    (root / "val/images/.hidden.png").write_text("no image")
    (root / "val/masks/Thumbs.db").write_text("no mask")
    data = made(root, image_size=(40, 60))
    assert len(data.val_set) == 3  # type: ignore[arg-type]
    image, mask = data.val_set[1]
    assert (classes_of(image) == mask).float().mean() > 0.98


def test_folders_below_are_read(root: Path) -> None:
    for kind in ("images", "masks"):
        (root / "val" / kind / "ulm/.hidden").mkdir(parents=True)
        for index in range(2):
            (root / f"val/{kind}/{index:02}.png").rename(root / f"val/{kind}/ulm/{index}.png")
    (root / "val/images/ulm/.hidden/2.png").touch()
    data: Any = made(root, image_size=(40, 60))
    assert [image.name for image, _ in data.val_set.pairs] == ["02.png", "0.png", "1.png"]
    for (_, mask), index in zip([data.val_set[i] for i in range(3)], (2, 0, 1), strict=True):
        assert np.array_equal(mask.numpy(), regions(index))
    (root / "val/masks/ulm/1.png").rename(root / "val/masks/1.png")
    with pytest.raises(ValueError, match=r"1 files without a mask: \S*val/images/ulm/1.png"):
        made(root)


@pytest.mark.parametrize("channels", [1, 2, 4, 5])
def test_images_of_any_channels(tmp_path: Path, channels: int) -> None:
    """TIFFs of 16 bits; the mask of a class is the part where the last channel is bright."""
    write(tmp_path, "train", 6)
    write(tmp_path, "test", 2)
    generator = np.random.default_rng(0)
    for file in sorted(tmp_path.rglob("images/*.png")):
        values = generator.integers(0, 100, (channels, 40, 60)).astype(np.uint16)
        values[-1] += (regions(int(file.stem)) > 0).astype(np.uint16) * 300  # dark: in 8 bits hardly anything is left
        file.unlink()
        tifffile.imwrite(file.with_suffix(".tif"), values, photometric="minisblack")
    data: Any = MaskFolder(str(tmp_path), num_classes=3, image_size=[40, 60], channels=channels, value_range=[0, 400])
    data.setup("fit")
    for index, (file, _) in enumerate(data.test_set.pairs):
        image, mask = data.test_set[index]
        assert image.shape == (channels, 40, 60)
        mean, deviation = (data.facts[name][-1] for name in ("mean", "deviation"))
        assert torch.equal(image[-1] * deviation + mean > 0.5, mask > 0)
        fresh = MaskFolder(str(tmp_path), num_classes=3, image_size=[40, 60], channels=channels, value_range=[0, 400])
        fresh.facts = dict(data.facts)
        assert torch.equal(fresh.read(file), image)
        assert torch.equal(fresh.read(file.read_bytes()), image)
        assert fresh.unlabelled(file)[1]["file_size"].tolist() == [40, 60]
    torch.manual_seed(0)
    images = torch.cat([image for image, _ in data.train_dataloader()])
    assert images.shape[1] == channels
    assert images.isfinite().all()


# the parts


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_a_folder_val_validates(root: Path, name: str) -> None:
    (root / "val").rename(root / name)
    data = made(root)
    assert [len(part) for part in (data.train_set, data.val_set, data.test_set)] == [10, 3, 4]  # type: ignore[arg-type]


def test_validation_is_cut_from_training_the_same_way_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "train", 10)
    splits = []
    for seed in ("7", "8"):
        monkeypatch.setenv("PL_GLOBAL_SEED", seed)
        torch.manual_seed(int(seed))
        data: Any = made(tmp_path, val_share=0.3)
        splits.append([[image.name for image, _ in part.pairs] for part in (data.train_set, data.val_set)])
        assert data.test_set is None
    assert splits[0] == splits[1]
    assert [len(part) for part in splits[0]] == [7, 3]
    assert sorted(splits[0][0] + splits[0][1]) == [f"{index:02}.png" for index in range(10)]


# augmentation


def test_without_changes_training_sees_what_evaluation_sees(root: Path) -> None:
    data: Any = made(root, flip=False, crop=1.0, colour=0.0)
    for index in range(10):
        image, mask = data.augment(data.train_set[index])
        expected_image, expected_mask = data.evaluated(data.train_set[index])
        assert torch.equal(image, expected_image)
        assert torch.equal(mask, expected_mask)


@pytest.mark.parametrize("options", [{"crop": 1.0}, {"flip": False}, {"crop": 0.2}])
def test_image_and_mask_change_together(root: Path, options: dict[str, Any]) -> None:
    """Every pixel but those at edges has the colour of its class."""
    data = made(root, image_size=(40, 60), colour=0.0, **options)
    found = samples(data.train_dataloader())
    assert len(found) == 10
    agreement = [(classes_of(image) == mask).float().mean().item() for image, mask in found]
    assert min(agreement) > 0.96, agreement
    whole = [data.evaluated(sample)[1] for sample in data.train_set]
    assert any(all(not torch.equal(mask, other) for other in whole) for _, mask in found), "nothing was changed"


def test_half_of_the_images_are_mirrored(root: Path) -> None:
    data: Any = made(root, image_size=(40, 60), crop=1.0, colour=0.0)
    sample = data.train_set[0]
    torch.manual_seed(0)
    mirrored = [torch.equal(data.augment(sample)[1], sample[1].flip(-1)) for _ in range(400)]
    assert 0.4 < sum(mirrored) / 400 < 0.6
    plain = [torch.equal(data.augment(sample)[1], sample[1]) for _ in range(50)]
    assert 0 < sum(plain) < 50


def test_crops_take_no_less_than_their_share(root: Path) -> None:
    """The ground is one part of a picture in two halves; how much of it is left tells how large the crop was."""
    data: Any = made(root, image_size=(50, 50), crop=0.5, colour=0.0, flip=False)
    ramp = torch.arange(100).expand(3, 100, 100).to(torch.uint8)  # brightness tells the column
    torch.manual_seed(0)
    spans = []
    for _ in range(200):
        image, _ = data.augment((ramp, torch.zeros(100, 100, dtype=torch.int64)))
        spans.append(255 * (image[0, 0, -1] - image[0, 0, 0]).item() * 50 / 49)
    # width of a crop of area a and ratio r: 100 √(a r), a in [0.5, 1], r in [3/4, 4/3]
    assert 100 * (0.5 * 3 / 4) ** 0.5 - 3 < min(spans) < 75, min(spans)
    assert 85 < max(spans) < 103, max(spans)


def test_colours_change_and_masks_do_not(root: Path) -> None:
    data: Any = made(root, flip=False, crop=1.0, colour=0.4)
    expected_image, expected_mask = data.evaluated(data.train_set[0])
    torch.manual_seed(0)
    images = []
    for _ in range(20):
        image, mask = data.augment(data.train_set[0])
        assert torch.equal(mask, expected_mask)
        images.append(image)
    assert len({image.numpy().tobytes() for image in [*images, expected_image]}) == 21
    brightness = torch.stack([image.mean() for image in images]) / expected_image.mean()
    assert 0.5 < brightness.min() < 0.9
    assert 1.1 < brightness.max() < 1.5


def test_workers_draw_the_same(root: Path) -> None:
    """Under every way of starting one, which pickles what it is given."""
    pickle.dumps(made(root).augment)
    data = made(root, num_workers=1)
    first, second = samples(made(root).train_dataloader()), samples(data.train_dataloader())
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(first, second, strict=True))


# what is broken


def truncate(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def enlarge(file: Path) -> None:
    read_image(file).resize((70, 40)).save(file)


BROKEN: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "truncated image": ("images", truncate, r"images/02.png\): OSError: .*(truncated|broken)"),
    "truncated mask": ("masks", truncate, r"masks/02.png\): OSError: .*(truncated|broken)"),
    "no image": ("images", lambda file: file.write_text("?"), r"images/02.png\): OSError: cannot identify image file"),
    "no mask": ("masks", lambda file: file.write_bytes(b""), r"masks/02.png\): OSError: cannot identify image file"),
    "size": ("masks", enlarge, r": .*masks/02.png: is 70 × 40 pixels, its image 60 × 40"),
    "value": (
        "masks",
        lambda file: Image.fromarray(regions(2) + 2).save(file),
        r": .*masks/02.png: contains 3, 4, expected only 0, 1, 2; see --data.num_classes",
    ),
    "colours": (
        "masks",
        lambda file: Image.fromarray(COLOURS[regions(2)]).save(file),
        r": .*masks/02.png: expected palette or grey values, got RGB",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_named(root: Path, kind: str) -> None:
    folder, break_it, message = BROKEN[kind]
    break_it(root / "test" / folder / "02.png")
    with pytest.raises(DataError, match=rf"--data: test sample 2 \(.*{message}"):
        samples(made(root).test_dataloader())


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_can_be_skipped_and_is_counted(root: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder, break_it, _ = BROKEN[kind]
    break_it(root / "train" / folder / "02.png")
    data = made(root, on_error="skip")
    assert len(samples(data.train_dataloader())) == 9
    assert data.skipped_samples == {"train 2"}
    assert "02.png" in capsys.readouterr().err


def test_a_missing_counterpart_is_an_error_with_a_count(root: Path) -> None:
    for index in (1, 3, 5, 7, 9):
        (root / f"train/masks/{index:02}.png").unlink()
    message = r"--data.root: 5 files without a mask: .*/01.png, .*/03.png, .*/05.png and 2 more"
    with pytest.raises(ValueError, match=message):
        made(root)
    for index in (1, 3, 5, 7, 9):
        (root / f"train/images/{index:02}.png").unlink()
    (root / "train/images/00.png").unlink()
    with pytest.raises(ValueError, match=r"--data.root: 1 files without an image: \S*train/masks/00.png; --data.on"):
        made(root)


def test_what_lacks_its_counterpart_can_be_left_out(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in ("masks/01.png", "masks/03.png", "images/00.png"):
        (root / "train" / file).unlink()
    data: Any = made(root, on_error="skip")
    data.setup("test")
    assert [image.name for image, _ in data.train_set.pairs] == [f"{index:02}.png" for index in (2, 4, 5, 6, 7, 8, 9)]
    assert data.counts == {"left_out_files": 3}
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: left out 2 files without a mask: ")
    assert "train/images/01.png" in first
    assert second == f"warning: left out 1 files without an image: {(root / 'train/masks/00.png').as_posix()}"


@pytest.mark.parametrize("suffix", ["bmp", "gif", "tif", "TIFF"])
def test_masks_of_other_formats(root: Path, suffix: str) -> None:
    read_image(root / "val/masks/00.png").save(root / f"val/masks/00.{suffix}")
    (root / "val/masks/00.png").unlink()
    Image.new("L", (60, 40), 9).save(root / f"val/masks/01.{suffix}")  # a PNG goes before
    data = made(root, image_size=(40, 60))
    assert all(np.array_equal(data.val_set[index][1].numpy(), regions(index)) for index in range(3))
    Image.new("L", (60, 40)).save(root / f"val/masks/09.{suffix}")
    with pytest.raises(ValueError, match=rf"1 files without an image: \S*val/masks/09.{suffix}"):
        made(root)


def test_files_beside_the_masks_do_not_matter(root: Path) -> None:
    Image.new("L", (60, 40)).save(root / "val/masks/preview.tif")
    assert len(made(root).val_set) == 3  # type: ignore[arg-type]


def test_a_mask_of_jpeg_is_not_taken(root: Path) -> None:
    read_image(root / "val/masks/00.png").save(root / "val/masks/00.jpg")
    assert len(made(root).val_set) == 3  # type: ignore[arg-type]
    (root / "val/masks/00.png").unlink()
    message = r"1 files without a mask \(JPEG changes the values of masks, expected PNG\): \S*val/images/00.png"
    with pytest.raises(ValueError, match=message):
        made(root)


def test_two_images_of_one_name_are_an_error(root: Path) -> None:
    read_image(root / "val/images/00.png").save(root / "val/images/00.jpg")
    with pytest.raises(ValueError, match=r"--data.root: 1 files with the name of another image: .*/val/images/00"):
        made(root)


def test_folders_that_are_missing_or_empty_are_named(root: Path, tmp_path: Path) -> None:
    for file in (root / "train/images").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match=r"--data.root: expected images in .*/train/images, .avif, .bmp.*; found none"):
        made(root)
    with pytest.raises(
        ValueError, match=r"--data.root: expected a folder .*/nowhere/train/images, which does not exist"
    ):
        made(tmp_path / "nowhere")


def test_too_few_images_to_validate_with(tmp_path: Path) -> None:
    write(tmp_path, "train", 1)
    with pytest.raises(ValueError, match=r"--data.val_share: 0.2 of 1 images leaves one part empty"):
        made(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 1}, "num_classes: expected at least 2, got 1"),
        ({"values": [0, 1]}, r"values: expected 3 numbers from 0 to 65535, got \[0, 1\]"),
        ({"values": [0, 1, 1]}, r"values: expected 3 numbers from 0 to 65535, got \[0, 1, 1\]"),
        ({"values": [0, 1, -1]}, r"values: expected 3 numbers from 0 to 65535, got \[0, 1, -1\]"),
        ({"ignore_index": 2}, "ignore_index: expected a value of no class from 0 to 65535, got 2"),
        ({"ignore_index": -100}, "ignore_index: expected a value of no class from 0 to 65535, got -100"),
        ({"image_size": [8]}, r"image_size: expected \[H, W\] of at least 1 pixel each, got \[8\]"),
        ({"image_size": [8, 0]}, r"image_size: expected \[H, W\] of at least 1 pixel each, got \[8, 0\]"),
        ({"val_share": 1.0}, r"val_share: expected a share in \(0, 1\), got 1.0"),
        ({"crop": 0.0}, r"crop: expected a share in \(0, 1\], got 0.0"),
        ({"colour": 1.1}, r"colour: expected a share in \[0, 1\], got 1.1"),
        ({"mean": [0.5]}, r"mean: expected 3 values, one a channel, got \[0.5\]"),
        ({"deviation": [1, 1]}, r"deviation: expected 3 values, one a channel, got \[1, 1\]"),
    ],
)
def test_arguments_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(Path(), **options)


# Oxford-IIIT Pet


def write_pets(root: Path, num_trainval: int = 5, num_test: int = 3) -> None:
    folder = root / "oxford-iiit-pet"
    (folder / "annotations/trimaps").mkdir(parents=True)
    (folder / "images").mkdir()
    for split, first, num in (("trainval", 0, num_trainval), ("test", num_trainval, num_test)):
        names = [f"{split}_{index}" for index in range(num)]
        for index, name in enumerate(names, first):  # no two are alike
            Image.fromarray(COLOURS[regions(index)]).save(folder / "images" / f"{name}.jpg", quality=95)
            Image.fromarray(regions(index) + 1).save(folder / "annotations/trimaps" / f"{name}.png")
        lines = [f"{name} 1 1 1\n" for name in names]
        (folder / "annotations" / f"{split}.txt").write_text("# name id species breed\n" + "".join(lines))


def pets(root: Path, **options: Any) -> OxfordPets:
    data = OxfordPets(str(root), **{"image_size": (40, 60), **PLAIN, **options})
    data.prepare_data()
    data.setup("fit")
    return data


def test_pets_are_read_as_the_lists_say(tmp_path: Path) -> None:
    write_pets(tmp_path)
    data: Any = pets(tmp_path)
    assert [len(part) for part in (data.train_set, data.val_set, data.test_set)] == [4, 1, 3]
    for index, (image, mask) in enumerate(samples(data.test_dataloader()), 5):
        assert np.array_equal(mask.numpy(), regions(index))
        assert (classes_of(image) == mask).float().mean() > 0.98
    _, ignoring = pets(tmp_path, border="ignore").test_set[0]  # type: ignore[index]
    assert np.array_equal(ignoring.numpy(), np.array([0, 1, 255])[regions(5)])


def test_missing_pets_are_named(tmp_path: Path) -> None:
    write_pets(tmp_path)
    (tmp_path / "oxford-iiit-pet/images/trainval_1.jpg").unlink()
    (tmp_path / "oxford-iiit-pet/annotations/trimaps/trainval_3.png").unlink()
    with pytest.raises(ValueError, match=r"--data.root: 2 files not there: .*trainval_1.jpg, .*trainval_3.png; --data"):
        pets(tmp_path)
    data: Any = pets(tmp_path, on_error="skip")
    assert [len(part) for part in (data.train_set, data.val_set, data.test_set)] == [2, 1, 3]
    assert data.counts == {"left_out_files": 2}


def test_pets_have_no_number_of_classes(tmp_path: Path) -> None:
    write_pets(tmp_path)
    Image.fromarray(regions(0)).save(tmp_path / "oxford-iiit-pet/annotations/trimaps/test_0.png")
    with pytest.raises(ValueError, match=r"test_0.png: contains 0, expected only 1, 2, 3$"):
        pets(tmp_path).test_set[0]  # type: ignore[index]


def test_pets_that_cannot_be_downloaded_are_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise OSError("<urlopen error no route\nto host>")

    monkeypatch.setattr("torchvision.datasets.utils.urllib.request.urlopen", unreachable)
    missing = r"contains no OxfordIIITPet \(oxford-iiit-pet/images and annotations\)"
    message = f"{missing}, and it cannot be downloaded: .*no route to host"
    with pytest.raises(ValueError, match=message) as caught:
        pets(tmp_path)
    assert "\n" not in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_pets_with_an_unknown_border(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="border: expected class or ignore, got none"):
        pets(tmp_path, border="none")


@needs("oxford_pets")
def test_real_pets_are_torchvisions_and_stay_as_they_are() -> None:
    before = {file: file.stat().st_mtime_ns for file in REAL.rglob("*")}
    data: Any = pets(REAL, image_size=(64, 48))
    assert [len(part) for part in (data.train_set, data.val_set, data.test_set)] == [67, 17, 42]
    reference = OxfordIIITPet(REAL, split="test", target_types="segmentation")
    for index in range(0, 42, 6):
        image, trimap = reference[index]
        found, mask = data.test_set[index]
        expected = v2.functional.resize(v2.functional.pil_to_tensor(image), [64, 48], antialias=True)
        torch.testing.assert_close(found, expected / 255)
        assert np.array_equal(mask.numpy(), np.array(trimap.resize((48, 64), Image.Resampling.NEAREST)) - 1)
    assert {file: file.stat().st_mtime_ns for file in REAL.rglob("*")} == before


@needs("oxford_pets")
def test_real_pets_train_a_net() -> None:
    torch.manual_seed(0)
    task = Segmentation(UNet(2, [4, 8]), 2, ignore_index=255)
    data = pets(REAL, border="ignore", image_size=(32, 32), batch_size=8)
    trainer = Trainer(**UNSAVED, max_epochs=1, limit_train_batches=3)
    trainer.fit(task, datamodule=data)
    assert 0 < trainer.callback_metrics["val/miou"] < 1
