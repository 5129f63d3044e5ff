"""Images of any number of channels and bits: values against those that were written, broken files, and training."""

import io
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import pil_to_tensor

from playbook.errors import UserError
from playbook.testing.command import Cli
from src.data.vision.channels import ChannelReader
from src.data.vision.image_folder import ImageFolder
from src.data.vision.images import Annotated, read_image, with_mode
from src.data.vision.normalise import Normalise
from src.data.vision.recolour import recolour

COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # of a PNG, by its channels
LAYOUTS: dict[str, dict[str, Any]] = {
    "planar": {"photometric": "minisblack", "planarconfig": "separate"},
    "interleaved": {"photometric": "minisblack", "planarconfig": "contig"},
    "pages": {"photometric": "minisblack"},
    "plain pages": {"photometric": "minisblack", "metadata": None},
    "imagej": {"imagej": True},
    "ome": {"ome": True, "metadata": {"axes": "CYX"}},
    "big": {"photometric": "minisblack", "bigtiff": True},
}


def values_of(channels: int, dtype: Any = np.uint16, size: tuple[int, int] = (12, 9)) -> np.ndarray:
    """Random values (C, H, W) over the whole range of their type."""
    generator = np.random.default_rng(channels)
    return generator.integers(0, np.iinfo(dtype).max, (channels, *size), endpoint=True).astype(dtype)


def write_png(file: Path, values: np.ndarray) -> None:
    """Writes (C, H, W) with 16 bits per channel, which Pillow cannot."""
    channels, height, width = values.shape

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 16, COLOUR_TYPES[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values.transpose(1, 2, 0))
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


def write_tiff(file: Path, values: np.ndarray, layout: str = "interleaved", **options: Any) -> None:
    stored = values.transpose(1, 2, 0) if layout == "interleaved" else values
    tifffile.imwrite(file, stored, **LAYOUTS[layout], **options)


def scaled(values: np.ndarray) -> Tensor:
    """Values as floats of their type's whole range, in float64."""
    return torch.from_numpy(values.astype(np.float64) / np.iinfo(values.dtype).max)


def assert_read(source: Path | bytes, channels: int, expected: Tensor, **options: Any) -> None:
    image = ChannelReader(channels, **options).tensor(source)
    found = image if image.is_floating_point() else image / 255
    assert found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=1e-6)


# values


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [2, 3, 4, 5, 16])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_every_value_of_a_tiff_is_read(tmp_path: Path, layout: str, channels: int, dtype: Any) -> None:
    values = values_of(channels, dtype)
    write_tiff(tmp_path / "a.tif", values, layout)
    assert_read(tmp_path / "a.tif", channels, scaled(values))
    assert_read((tmp_path / "a.tif").read_bytes(), channels, scaled(values))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_every_bit_of_a_png_is_read(tmp_path: Path, channels: int) -> None:
    values = values_of(channels)
    write_png(tmp_path / "a.png", values)
    assert_read(tmp_path / "a.png", channels, scaled(values))
    assert_read((tmp_path / "a.png").read_bytes(), channels, scaled(values))


@pytest.mark.parametrize("suffix", ["png", "tif", "jp2"])
def test_every_bit_of_a_grey_image_is_read(tmp_path: Path, suffix: str) -> None:
    values = values_of(1)
    Image.fromarray(values[0]).save(tmp_path / f"a.{suffix}")
    assert_read(tmp_path / f"a.{suffix}", 1, scaled(values))
    assert_read(tmp_path / f"a.{suffix}", 3, scaled(values).expand(3, -1, -1))


@pytest.mark.parametrize("mode", ["LA", "RGBA", "CMYK"])
def test_8_bits_of_several_channels_stay_bytes(tmp_path: Path, mode: str) -> None:
    values = values_of(len(mode), np.uint8)
    suffix = "tif" if mode == "CMYK" else "png"
    Image.fromarray(values.transpose(1, 2, 0), mode).save(tmp_path / f"a.{suffix}")
    image = ChannelReader(len(mode))(tmp_path / f"a.{suffix}")
    assert isinstance(image, Tensor)
    assert image.dtype == torch.uint8
    assert np.array_equal(image.numpy(), values)


@pytest.mark.parametrize("transparency", [None, 3])
def test_a_palette_stands_for_its_colours(tmp_path: Path, transparency: int | None) -> None:
    palette = Image.fromarray(values_of(3, np.uint8).transpose(1, 2, 0)).quantize(8)
    palette.save(tmp_path / "a.png", transparency=transparency)
    if transparency is None:
        with pytest.raises(UserError, match=r"a.png: has 3 channels of 9 × 12 pixels, expected 4"):
            ChannelReader(4)(tmp_path / "a.png")
    else:
        expected = np.asarray(Image.open(tmp_path / "a.png").convert("RGBA")).transpose(2, 0, 1)
        assert np.array_equal(ChannelReader(4).tensor(tmp_path / "a.png").numpy(), expected)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_8_bits_as_grey_and_rgb_are_what_pillow_makes_of_them(tmp_path: Path, mode: str, channels: int) -> None:
    suffix = "tif" if mode == "CMYK" else "png"
    Image.fromarray(values_of(3, np.uint8).transpose(1, 2, 0)).convert("RGB").convert(mode).save(
        tmp_path / f"a.{suffix}"
    )
    image = ChannelReader(channels)(tmp_path / f"a.{suffix}")
    assert isinstance(image, Image.Image), "the quick path"
    expected = with_mode(read_image(tmp_path / f"a.{suffix}"), "L" if channels == 1 else "RGB")
    assert np.array_equal(np.asarray(image), np.asarray(expected))


def test_16_bits_become_grey_and_rgb_as_8_bits_do(tmp_path: Path) -> None:
    """Within rounding to 8 bits; transparent pixels are laid on white."""
    for channels in (1, 2, 3, 4):
        values = values_of(channels)
        write_png(tmp_path / "deep.png", values)
        eight = np.round(values / 257).astype(np.uint8)
        share = values[-1:] / (2**16 - 1) if channels % 2 == 0 else np.ones(1)
        colours = eight[: channels - 1] if channels % 2 == 0 else eight
        shown = np.round(colours * share + 255 * (1 - share)).astype(np.uint8)
        for asked in (1, 3):
            flat = Image.fromarray(shown[0] if len(shown) == 1 else shown.transpose(1, 2, 0)).convert(
                "L" if asked == 1 else "RGB"
            )
            found = ChannelReader(asked).tensor(tmp_path / "deep.png")
            assert found.is_floating_point()
            torch.testing.assert_close(found, pil_to_tensor(flat) / 255, rtol=0, atol=1.01 / 255)


def test_alpha_of_a_tiff_is_left_out_and_other_channels_are_not(tmp_path: Path) -> None:
    values = values_of(4)
    stored = values.transpose(1, 2, 0)
    tifffile.imwrite(tmp_path / "alpha.tif", stored, photometric="rgb", extrasamples=["unassalpha"])
    assert_read(tmp_path / "alpha.tif", 3, scaled(values[:3]))
    assert_read(tmp_path / "alpha.tif", 4, scaled(values))
    tifffile.imwrite(tmp_path / "infrared.tif", stored, photometric="rgb", extrasamples=["unspecified"])
    with pytest.raises(
        UserError, match=r"infrared.tif: has 4 channels of 9 × 12 pixels, expected 3 as in --data.channels"
    ):
        ChannelReader(3)(tmp_path / "infrared.tif")


@pytest.mark.parametrize("channels", [1, 3])
def test_pages_of_grey_are_channels(tmp_path: Path, channels: int) -> None:
    """Pillow would read the first one alone."""
    values = values_of(3, np.uint8)
    write_tiff(tmp_path / "a.tif", values, "pages")
    if channels == 3:
        assert_read(tmp_path / "a.tif", 3, scaled(values))
    write_tiff(tmp_path / "b.tif", values_of(2, np.uint8), "pages")
    with pytest.raises(UserError, match=rf"b.tif: has 2 channels of 9 × 12 pixels, expected {channels} as in --data"):
        ChannelReader(channels)(tmp_path / "b.tif")


def test_an_array_that_tifffile_took_for_pages(tmp_path: Path) -> None:
    values = values_of(5)
    tifffile.imwrite(tmp_path / "a.tif", values.transpose(1, 2, 0))  # as many do, without a word on its axes
    assert_read(tmp_path / "a.tif", 5, scaled(values))


def test_a_range_of_values_becomes_0_to_1(tmp_path: Path) -> None:
    values = values_of(5) % 4096
    write_tiff(tmp_path / "twelve.tif", values)
    assert_read(tmp_path / "twelve.tif", 5, torch.from_numpy(values / 4095.0), value_range=[0, 4095])
    hounsfield = values_of(2).astype(np.int16)
    write_tiff(tmp_path / "signed.tif", hounsfield, "pages")
    assert_read(tmp_path / "signed.tif", 2, torch.from_numpy((hounsfield + 1000.0) / 3000), value_range=[-1000, 2000])
    floats = np.random.default_rng(0).normal(size=(1, 12, 9)).astype(np.float32)
    tifffile.imwrite(tmp_path / "float.tif", floats[0])
    assert_read(tmp_path / "float.tif", 1, torch.from_numpy((floats + 3.0) / 6), value_range=[-3, 3])
    Image.fromarray(values_of(3, np.uint8).transpose(1, 2, 0)).save(tmp_path / "a.png")
    assert_read(tmp_path / "a.png", 3, torch.from_numpy(values_of(3, np.uint8) / 100.0), value_range=[0, 100])


@pytest.mark.parametrize("compression", ["zlib", "lzw", "packbits", "zstd"])
@pytest.mark.parametrize("predictor", [False, True])
def test_compressed_tiffs(tmp_path: Path, compression: str, predictor: bool) -> None:
    values = values_of(5)
    write_tiff(tmp_path / "a.tif", values, compression=compression, predictor=predictor)
    assert_read(tmp_path / "a.tif", 5, scaled(values))


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_tiff_is_turned_upright_as_pillow_turns_it(tmp_path: Path, turn: int) -> None:
    values = values_of(2, np.uint8)
    tag = [(274, "H", 1, turn, False)]
    tifffile.imwrite(tmp_path / "grey.tif", values[0], extratags=tag, compression="zlib")
    upright = np.asarray(read_image(tmp_path / "grey.tif"))
    write_tiff(tmp_path / "two.tif", values, extratags=tag)
    found = ChannelReader(2).tensor(tmp_path / "two.tif")
    assert np.array_equal(found[0].numpy(), upright)
    stored = ChannelReader(2).tensor(tmp_path / "two.tif", Annotated((9, 12), as_stored=True))
    assert np.array_equal(stored.numpy(), values)
    by_size = ChannelReader(2).tensor(tmp_path / "two.tif", Annotated((9, 12)))
    assert np.array_equal(by_size.numpy(), values if turn > 4 else found.numpy()), "only a quarter turn tells"


def test_pictures_to_draw_on(tmp_path: Path) -> None:
    values = values_of(5) // 100  # a dark file: a small part of the range
    write_tiff(tmp_path / "a.tif", values)
    picture = ChannelReader(5).picture(tmp_path / "a.tif")
    assert (picture.dtype, picture.shape) == (torch.uint8, (3, 12, 9))
    assert (picture.min(), picture.max()) == (0, 255)
    write_tiff(tmp_path / "b.tif", values_of(2, np.uint8))
    assert np.array_equal(ChannelReader(2).picture(tmp_path / "b.tif")[2].numpy(), values_of(2, np.uint8)[0])


# what goes wrong


@pytest.mark.parametrize(("asked", "channels"), [(5, 3), (5, 6), (3, 5), (1, 7), (4, 2)])
def test_another_number_of_channels_names_the_file_and_both(tmp_path: Path, asked: int, channels: int) -> None:
    write_tiff(tmp_path / "a.tif", values_of(channels))
    message = rf"^\S*/a.tif: has {channels} channels of 9 × 12 pixels, expected {asked} as in --data.channels$"
    with pytest.raises(UserError, match=message):
        ChannelReader(asked)(tmp_path / "a.tif")


@pytest.mark.parametrize("values", [np.full((5, 4, 4), 0.5, np.float32), np.full((5, 4, 4), -1, np.int16)])
def test_values_without_a_known_range_need_one(tmp_path: Path, values: np.ndarray) -> None:
    write_tiff(tmp_path / "a.tif", values)
    with pytest.raises(
        UserError, match=r"a.tif: expected 8 or 16 bits a channel, got \w+16|32 from .*--data.value_range"
    ):
        ChannelReader(5)(tmp_path / "a.tif")


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    values = np.ones((5, 4, 4), np.float32)
    values[2, 1, 1] = np.nan
    write_tiff(tmp_path / "a.tif", values)
    with pytest.raises(UserError, match=r"a.tif: has values that are not finite"):
        ChannelReader(5, [0, 1])(tmp_path / "a.tif")


@pytest.mark.parametrize("compression", [None, "zlib", "lzw"])
def test_a_damaged_tiff_is_an_error_that_names_it(tmp_path: Path, compression: str | None) -> None:
    write_tiff(tmp_path / "a.tif", values_of(5, size=(40, 40)), compression=compression)
    content = (tmp_path / "a.tif").read_bytes()
    generator = np.random.default_rng(0)
    failures = 0
    for length in [*range(8, 300, 13), *range(300, len(content), len(content) // 7)]:
        (tmp_path / "a.tif").write_bytes(content[:length])
        with pytest.raises((OSError, UserError), match=r"a.tif"):
            ChannelReader(5)(tmp_path / "a.tif")
    for _ in range(60):
        broken = bytearray(content)
        broken[int(generator.integers(4, 300))] ^= int(generator.integers(1, 256))
        (tmp_path / "a.tif").write_bytes(broken)
        try:
            ChannelReader(5)(tmp_path / "a.tif")
        except (OSError, UserError):  # others would fail the test
            failures += 1
    assert failures > 10, failures


def test_a_damaged_png_of_16_bits_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_png(tmp_path / "a.png", values_of(3))
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:200])
    with pytest.raises(OSError, match=r"a.png"):
        ChannelReader(3)(tmp_path / "a.png")


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiff(tmp_path / "a.tif", values_of(5))
    grey = values_of(1)
    Image.fromarray(grey[0]).save(tmp_path / "grey.tif")
    monkeypatch.setitem(sys.modules, "tifffile", None)
    assert_read(tmp_path / "grey.tif", 1, scaled(grey))
    for channels in (3, 5):
        with pytest.raises(UserError, match=r"a.tif: this kind of TIFF needs tifffile: uv sync --extra tiff"):
            ChannelReader(channels)(tmp_path / "a.tif")


def test_a_missing_decoder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiff(tmp_path / "a.tif", values_of(5), compression="lzw")

    def lack_imagecodecs(*_: Any, **__: Any) -> None:  # tifffile's words where it is not installed
        raise ValueError("<COMPRESSION.LZW: 5> requires the 'imagecodecs' package")

    monkeypatch.setattr(tifffile.TiffPageSeries, "asarray", lack_imagecodecs)
    with pytest.raises(UserError, match=r"a.tif: its compression LZW needs imagecodecs: uv sync --extra tiff"):
        ChannelReader(5)(tmp_path / "a.tif")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 0}, "channels: expected at least 1, got 0"),
        ({"value_range": [1, 1]}, r"value_range: expected a smaller and a larger value, got \[1, 1\]"),
        ({"value_range": [1]}, r"value_range: expected a smaller and a larger value, got \[1\]"),
        ({"channels": 5, "mean": [0.5] * 3}, r"mean: expected 5 values, one a channel, got \[0.5, 0.5, 0.5\]"),
        ({"channels": 2, "deviation": [0.5, 0]}, r"deviation: expected values above 0, got \[0.5, 0\]"),
        ({"channels": 5, "rand_augment": 2}, "rand_augment: expected 0 for images of 5 channels, got 2"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageFolder("nowhere", **options)


# colours


def test_every_channel_is_recoloured_as_a_grey_image_is() -> None:
    torch.manual_seed(0)
    image = torch.rand(5, 8, 6)
    torch.manual_seed(1)
    found = recolour(5, 0.4)(image)
    torch.manual_seed(1)
    change: Any = recolour(5, 0.4).change
    expected = change(image[2:3])  # a grey image, with the same draws
    torch.testing.assert_close(found[2:3], expected)
    assert not torch.equal(found, image)


# folders


def write_folder(root: Path, channels: int, dtype: Any = np.uint16, count: int = 8) -> None:
    """Two classes that differ in the brightness of the last channel alone."""
    generator = np.random.default_rng(0)
    for split, number in (("train", count), ("val", 3), ("test", 3)):
        for brightness, name in ((0.2, "dark"), (0.8, "light")):
            (root / split / name).mkdir(parents=True)
            for index in range(number):
                values = generator.uniform(0, 0.2, (channels, 20, 16))
                values[-1] += brightness
                stored = (values * np.iinfo(dtype).max).astype(dtype)
                if channels <= 4 and dtype == np.uint16 and channels != 1:
                    write_png(root / split / name / f"{index}.png", stored)
                elif channels == 1:
                    Image.fromarray(stored[0]).save(root / split / name / f"{index}.png")
                else:
                    write_tiff(root / split / name / f"{index}.tif", stored)


def folder(root: Path, **options: Any) -> ImageFolder:
    settings: dict[str, Any] = {"image_size": 14, "batch_size": 4} | options
    data = ImageFolder(str(root), **settings)
    data.setup("fit")
    return data


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 16])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_reading_a_file_is_evaluating_it(tmp_path: Path, channels: int, dtype: Any) -> None:
    write_folder(tmp_path, channels, dtype)
    data: Any = folder(tmp_path, channels=channels)
    reader = ImageFolder(str(tmp_path), image_size=14, channels=channels)  # knows the facts of a checkpoint alone
    reader.facts = dict(data.facts)
    for index, file in enumerate(data.test_set.files):
        sample, _ = data.test_set[index]
        assert sample.shape == (channels, 14, 14)
        assert torch.equal(reader.read(file), sample)
        assert torch.equal(reader.read(file.read_bytes()), sample)


def test_mean_and_deviation_are_those_of_the_training_images(tmp_path: Path) -> None:
    write_folder(tmp_path, 5)
    data: Any = folder(tmp_path, channels=5)
    values = np.stack([tifffile.imread(file) for file in data.train_set.files]).astype(np.float64) / 65535
    assert data.facts["mean"] == pytest.approx(values.mean((0, 1, 2)).tolist(), abs=1e-6)
    assert data.facts["deviation"] == pytest.approx(values.std((0, 1, 2)).tolist(), abs=1e-6)
    again: Any = ImageFolder(str(tmp_path), image_size=14, channels=5)
    again.facts = {"mean": [0.0] * 5, "deviation": [1.0] * 5, "classes": ["dark", "light"]}  # of a checkpoint
    again.setup("test")
    assert again.test_set[0][0].min() >= 0, "normalised as the checkpoint says"
    given = folder(tmp_path, channels=5, mean=[0.1] * 5)
    assert given.facts["mean"] == [0.1] * 5


def test_a_large_folder_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(values_of(4, np.uint8).transpose(1, 2, 0)).save(tmp_path / "a.png")
    reader, normalise, files = ChannelReader(4), Normalise(4, None, None), [tmp_path / "a.png"] * 1001
    read_files = []
    monkeypatch.setattr(ChannelReader, "_of_pillow", lambda *_: read_files.append(1) or torch.zeros(4, 2, 2))
    normalise.learn(files, reader, "stop")
    assert 90 <= len(read_files) <= 100, len(read_files)
    assert normalise.values["deviation"] == [pytest.approx(1 / 255)] * 4, "a constant channel stays finite"


def test_a_broken_image_does_not_end_learning_the_mean(tmp_path: Path) -> None:
    write_folder(tmp_path, 5)
    (tmp_path / "train/dark/3.tif").write_bytes(b"II*\0broken")
    with pytest.raises(UserError, match=r"^--data.root: \S*train/dark/3.tif: "):
        folder(tmp_path, channels=5)
    assert len(folder(tmp_path, channels=5, on_error="skip").facts["mean"]) == 5


def test_old_recipes_with_grey(tmp_path: Path) -> None:
    write_folder(tmp_path, 1, np.uint8)
    old, new = folder(tmp_path, grey=True), folder(tmp_path, channels=1)
    assert old.facts == new.facts
    assert (new.facts["mean"], new.facts["deviation"]) == ([0.5], [0.25])
    assert torch.equal(old.val_set[0][0], new.val_set[0][0])


RECIPE = """
seed_everything: 1
model:
  class_path: Classification
  init_args:
    num_classes: 2
    net: {class_path: CNN, init_args: {num_classes: 2, in_channels: 5, widths: [8]}}
    optimizer: {class_path: AdamW, init_args: {lr: 0.01}}
data: {class_path: ImageFolder, init_args: {image_size: 14, channels: 5, batch_size: 4, root: bands}}
trainer: {max_epochs: 4}
"""


@pytest.mark.slow
def test_five_bands_are_learnt_tested_and_refused_by_others(cli: Cli, workdir: Path) -> None:
    write_folder(workdir / "bands", 5)
    Path("recipe.yaml").write_text(RECIPE)
    done = cli("fit", "--config", "recipe.yaml", "--run_dir", "run")
    assert done.code == 0, done.err
    assert '"test/accuracy": 1.0' in Path("run/metrics.json").read_text()
    (workdir / "bands/train").rename(workdir / "elsewhere")
    tested = cli("test", "--ckpt_path", "run")
    assert tested.code == 0, tested.err
    write_tiff(workdir / "bands/test/dark/1.tif", values_of(4))
    refused = cli("test", "--ckpt_path", "run")
    assert refused.code == 2
    assert refused.err.endswith(
        "bands/test/dark/1.tif): has 4 channels of 9 × 12 pixels, expected 5 as in --data.channels\n"
    ), refused.err
    assert len(refused.err.splitlines()) == 1, refused.err


def test_bytes_are_named_as_the_image() -> None:
    stream = io.BytesIO()
    Image.new("RGB", (3, 2)).save(stream, "PNG")
    with pytest.raises(UserError, match=r"^the image: has 3 channels of 3 × 2 pixels, expected 4"):
        ChannelReader(4)(stream.getvalue())
