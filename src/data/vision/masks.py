"""Images with class masks, in folders."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import Dataset

from playbook import Data, UserError, nearest, split_indices
from src.data.vision.channels import ChannelReader
from src.data.vision.images import (
    FORMATS,
    Annotated,
    files_by_name,
    name_files,
    read_image,
    reading_of,
    split_folder,
)
from src.data.vision.mask_transforms import MaskTransforms, Pixels
from src.data.vision.mask_values import (
    VOID,
    MaskValues,
    code_of,
    consecutive,
    read_values,
    suggest_for,
    suggest_options,
)

IGNORED = VOID  # in batches: pixels without a class, unless the user's ignore_index is a number of no class
VALUES_NAMED = 8  # in a message
LOSSLESS = (".bmp", ".gif", ".tif", ".tiff")  # formats of masks if there is no PNG
Pair = tuple[Path, Path]  # an image and its mask


class _Masks(Data):
    """Base of the data sets with masks: maps mask values to classes, and transforms image and mask alike.

    Args:
        classes: number of the class for each mask value.
        class_names: names of the classes 0 to K - 1; None for their numbers.
        num_classes: number of classes K; None if `setup` sets it.
        reader: reads the images.
        transforms: changes image and mask in training and in evaluation.
        val_share: share of the training images used for validation, in (0, 1).
        batch_size: samples per batch and process, B.
        num_workers: number of loader processes.
        on_error: what happens to files without a counterpart and to samples that cannot be loaded.
        timeout_s: seconds without a batch after which a worker counts as hanging.
        check_files: whether to load every sample once before training.
    """

    formats = FORMATS
    advises = False  # whether options can change what the values of masks mean
    has_colours = False  # whether masks hold colours

    def __init__(
        self,
        classes: dict[int, int],
        class_names: Sequence[str] | None,
        num_classes: int | None,
        reader: ChannelReader,
        transforms: MaskTransforms,
        val_share: float,
        batch_size: int,
        num_workers: int,
        on_error: Literal["stop", "skip"],
        timeout_s: float,
        check_files: bool,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s, check_files=check_files)
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        if class_names is not None and not len(class_names) == len(set(class_names)) == num_classes:
            raise ValueError(f"class_names: expected {num_classes} different names, got {list(class_names)}")
        self.classes = classes
        self.num_classes = num_classes
        self.class_names = None if class_names is None else list(class_names)
        self.val_share = val_share
        self.reader = reader
        self.picture = reader.picture
        self.normalise = transforms.normalise
        self.evaluated = transforms.evaluation
        self.augment = transforms.training

    def hold(self, train: list[Pair], val: list[Pair] | None, test: list[Pair] | None) -> None:
        """Sets the three data sets; without one for validation, it is taken from train."""
        if val is None:
            train_part, val_part = split_indices(len(train), [1 - self.val_share, self.val_share])
            if not train_part or not val_part:
                raise UserError(f"--data.val_share: {self.val_share} of {len(train)} images leaves one part empty")
            train, val = [train[i] for i in train_part], [train[i] for i in val_part]
        self.reader.take(self.facts)
        self._name_classes()
        self.normalise.take(self.facts)
        self.normalise.learn([image for image, _ in train], self.reader, self.on_error)
        self.facts |= self.normalise.values
        self.facts["image_shape"] = [self.reader.channels, *self.evaluated.image_size]
        if (ignored := next((k for k in self.classes.values() if k >= len(self.facts["classes"])), None)) is not None:
            self.facts["ignore_index"] = ignored
        files = [mask for part in (train, val, test or []) for _, mask in part] if self.advises else []
        values = MaskValues(self.classes, self.has_colours, files)
        self.train_set = _Pairs(train, self.reader, values)
        self.val_set = _Pairs(val, self.reader, values, self.evaluated)
        self.test_set = _Pairs(test, self.reader, values, self.evaluated) if test is not None else None
        if self.test_set is not None:
            self.predict_set = _Images(self.test_set, self)  # so that masks come out in the size of their files
        parts = {"train": train, "val": val, "test": test or []}
        self.tell_copies({name: [image for image, _ in part] for name, part in parts.items()})
        self.check_loading()

    def _name_classes(self) -> None:
        """Sets the names of the classes; if a checkpoint has named them, sets their numbers to the checkpoint's."""
        assert self.num_classes is not None
        known = self.facts.setdefault("classes", self.class_names or [str(k) for k in range(self.num_classes)])
        if self.class_names in (None, known):
            self.class_names = known
            return
        if unknown := [name for name in self.class_names if name not in known]:
            text = f"the checkpoint has no class {unknown[0]}, but {', '.join(known)}"
            raise UserError(f"--data.class_names: {text}{nearest(unknown[0], known)}")
        numbers = [known.index(name) for name in self.class_names]
        self.classes = {value: numbers[k] if k < len(numbers) else k for value, k in self.classes.items()}
        self.class_names = known

    def read(self, source: Any, resize: bool = True) -> Tensor:
        """Reads an image (C, H, W), normalised, from a path or bytes; without resize, in the size of its file."""
        self.reader.take(self.facts)
        return self._prepared(self.reader.tensor(source), resize)

    def unlabelled(self, source: Any, resize: bool = True) -> tuple[Tensor, dict[str, Tensor]]:
        self.reader.take(self.facts)
        pixels = self.reader.tensor(source)
        return self._prepared(pixels, resize), {"file_size": torch.tensor(pixels.shape[1:])}  # H, W

    def preprocessing(self) -> dict[str, Any] | None:
        channels = self.reader.channels
        if channels not in (1, 3) or self.reader.value_range is not None:
            return None  # such files are read by more than Pillow
        self.normalise.take(self.facts)
        steps: list[dict[str, Any]] = [{"resize": self.evaluated.image_size}, {"multiply": 1 / 255}]
        self.reader.take(self.facts)
        return reading_of(channels, steps, bits=16, background=self.reader.background, **self.normalise.values)

    def _prepared(self, pixels: Tensor, resize: bool) -> Tensor:
        self.normalise.take(self.facts)
        if not resize:
            return self.evaluated.normalise(pixels)
        return self.evaluated((pixels, torch.zeros(pixels.shape[1:], dtype=torch.int64)))[0]

    def leave_out(self, what: str, files: list[Path]) -> None:
        """Ends the run because of files without a counterpart; with on_error skip, reports and counts them."""
        if not files:
            return
        if self.on_error == "stop":
            raise UserError(f"--data.root: {name_files(what, files)}; --data.on_error skip leaves them out")
        self._left_out("files", len(files), name_files(what, files))


class MaskFolder(_Masks):
    """Images and masks of class ids in root/train/images and root/train/masks, and likewise for val and test.

    An image and its mask have the same name, also in subfolders: images/a/b.jpg and masks/a/b.png. Masks hold palette
    or grey values, also as RGB with three equal channels, or one colour for each class. Without a folder val, part of
    train is used for validation; without a folder test there is no test.

    Args:
        root: folder that contains the splits.
        num_classes: number of classes K, at least 2. Defaults to that of values, colours or class_names, else to what
            the values in at most 200 masks tell.
        class_names: names of the classes 0 to K - 1. Default to their numbers.
        values: mask values of the classes 0 to K - 1, such as [0, 255]. Defaults to the class ids themselves.
        ignore_index: mask value of pixels without a class, often 255. Defaults to none. If it is below num_classes,
            batches contain 255 instead. The task takes its ignore_index from the data.
        image_size: height and width in pixels to which images and masks are resized, [H, W].
        val_share: share of train used for validation if there is no folder val, chosen with a fixed seed, in (0, 1).
        flip: whether half of the training images are mirrored left to right.
        crop: smallest share of the area that a random crop of a training image covers, in (0, 1]; 1 turns it off.
        colour: largest change of brightness, contrast and saturation of training images, as a share in [0, 1]; 0 turns
            it off.
        mean: mean to subtract from each channel, for values in [0, 1], such as [R, G, B]. Defaults to ImageNet's for
            RGB, 0.5 for grey images, and that of 100 training images for others.
        deviation: standard deviation to divide each channel by, such as [R, G, B]. Defaults to ImageNet's for RGB, 0.25
            for grey images, and that of 100 training images for others.
        channels: channels of an image, C. Grey and RGB files are converted to 1 or 3 channels; any other number must be
            that of the files, such as 4 for RGBA or 5 for a TIFF of 5 bands or pages.
        value_range: values in the files that become 0 and 1. Defaults to 0 and 255 for files of 8 bits, 0 and 65535 for
            16 bits; required for floats.
        batch_size: samples per batch and process, B, at least 1.
        num_workers: number of loader processes; 0 loads in the main process.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json). Also applies to files
            without a counterpart.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        colours: colours of the classes 0 to K - 1 in masks that are coloured, such as [[0, 0, 0], [128, 0, 0]]. By
            default, masks hold values.
        ignore_colour: colour of pixels without a class; batches contain 255. Defaults to none.
        check_files: whether to load every sample once before training, to count those that cannot be loaded.

    Shapes:
        image (B, C, H, W), normalised; mask (B, H, W), 0 to K - 1, or ignore_index or 255.

    Raises:
        ValueError: a value is out of range.
        UserError: there are no images or, with on_error stop, an image or a mask lacks its counterpart.
    """

    advises = True

    def __init__(
        self,
        root: str,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        values: Sequence[int] | None = None,
        ignore_index: int | None = None,
        image_size: Sequence[int] = (256, 256),
        val_share: float = 0.2,
        flip: bool = True,
        crop: float = 0.5,
        colour: float = 0.2,
        mean: Sequence[float] | None = None,
        deviation: Sequence[float] | None = None,
        channels: int = 3,
        value_range: Sequence[float] | None = None,
        batch_size: int = 64,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        colours: Sequence[Sequence[int]] | None = None,
        ignore_colour: Sequence[int] | None = None,
        check_files: bool = False,
    ) -> None:
        if num_classes is not None and num_classes < 2:
            raise ValueError(f"num_classes: expected at least 2, got {num_classes}")
        if num_classes is None:
            named = next((part for part in (values, colours, class_names) if part is not None), None)
            num_classes = None if named is None else len(named)
        if colours is None:
            if ignore_colour is not None:
                raise ValueError("ignore_colour: needs colours, those of the classes")
            _check_values(values, num_classes, ignore_index)
        else:
            _check_colours(colours, num_classes, ignore_colour)
            if values is not None or ignore_index is not None:
                option = "values" if values is not None else "ignore_index"
                raise ValueError(f"{option}: expected none with colours; see ignore_colour for pixels without a class")
        self.has_colours = colours is not None
        self.values = values
        self.ignored = ignore_index
        if colours is not None:
            self.values = [code_of(colour) for colour in colours]
            self.ignored = None if ignore_colour is None else code_of(ignore_colour)
        reader = ChannelReader(channels, value_range)
        transforms = MaskTransforms(image_size, flip, crop, colour, channels, mean, deviation)
        super().__init__(
            classes={},
            class_names=class_names,
            num_classes=num_classes,
            reader=reader,
            transforms=transforms,
            val_share=val_share,
            batch_size=batch_size,
            num_workers=num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
            check_files=check_files,
        )
        self.root = Path(root)
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # read already: Lightning asks again for every stage
            return
        train, val, test = (
            self._pairs_of(folder) if folder.is_dir() or folder.name == "train" else None
            for folder in (split_folder(self.root, split) for split in ("train", "val", "test"))
        )
        assert train is not None
        if self.num_classes is None:
            known = self.facts.get("classes")  # of a checkpoint
            masks = [mask for part in (train, val, test) for _, mask in part or []]
            self.num_classes = self._count_classes(masks) if known is None else len(known)
        values = range(self.num_classes) if self.values is None else self.values
        self.classes = {value: k for k, value in enumerate(values)}
        if self.ignored is not None:
            is_number = not self.has_colours and self.ignored >= self.num_classes
            self.classes[self.ignored] = self.ignored if is_number else IGNORED
        self.hold(train, val, test)

    def _count_classes(self, masks: list[Path]) -> int:
        """The number of classes that the values of the masks tell.

        Raises:
            UserError: they do not, as where classes are 0 and 255.
        """
        values, colours = read_values(masks)
        values -= {self.ignored}
        num_classes = 0 if colours else consecutive(sorted(values))
        if not num_classes:
            held = "colours" if colours else ", ".join(map(str, sorted(values)[:VALUES_NAMED])) or "no value"
            more = f" and {len(values) - VALUES_NAMED} more" if len(values) > VALUES_NAMED and not colours else ""
            advice = suggest_options(masks) if colours else suggest_for(values) if values else "see --data.num_classes"
            raise UserError(f"--data.root: masks in {self.root.as_posix()} hold {held}{more}; {advice}")
        if self.speaks:
            listed = ", ".join(map(str, sorted(values)[:VALUES_NAMED])) + (", …" if len(values) > VALUES_NAMED else "")
            print(f"data: masks hold {listed}: {num_classes} classes (--data.num_classes)", file=sys.stderr)
        return num_classes

    def _pairs_of(self, folder: Path) -> list[Pair]:
        """Pairs images and masks by name; files without a counterpart are skipped."""
        images, masks = files_by_name(folder / "images", FORMATS), files_by_name(folder / "masks", (".png",))
        self.leave_out_others([folder / "images"])
        if not images:
            place = f"{folder.as_posix()}/images, {', '.join(FORMATS)}"
            raise UserError(f"--data.root: expected images in {place}; found none")
        if images.keys() - masks.keys():
            masks = files_by_name(folder / "masks", LOSSLESS) | masks
        lacking = {name: file for name, file in images.items() if name not in masks}
        is_jpeg = any((folder / "masks" / f"{name}{end}").exists() for name in lacking for end in (".jpg", ".jpeg"))
        hint = " (JPEG changes the values of masks, expected PNG)" if is_jpeg else ""
        self.leave_out(f"without a mask{hint}", list(lacking.values()))
        self.leave_out("without an image", [mask for name, mask in masks.items() if name not in images])
        return [(file, masks[name]) for name, file in images.items() if name in masks]


def _check_values(values: Sequence[int] | None, num_classes: int | None, ignore_index: int | None) -> None:
    """Checks mask values of classes, and of pixels without one.

    Raises:
        ValueError: a value is out of range, or their number is wrong.
    """
    if values is None and num_classes is not None:
        values = range(num_classes)
    if values is not None and (len(set(values)) != num_classes or not 0 <= min(values) <= max(values) < 2**16):
        raise ValueError(f"values: expected {num_classes} numbers from 0 to 65535, got {list(values)}")
    if ignore_index is not None and (ignore_index in (values or ()) or not 0 <= ignore_index < 2**16):
        raise ValueError(f"ignore_index: expected a value of no class from 0 to 65535, got {ignore_index}")
    if ignore_index is not None and num_classes is not None and ignore_index < num_classes > IGNORED:
        raise ValueError(f"ignore_index: expected at least {num_classes} as num_classes, got {ignore_index}")


def _check_colours(
    colours: Sequence[Sequence[int]], num_classes: int | None, ignore_colour: Sequence[int] | None
) -> None:
    """Checks the colours of classes, and of pixels without one.

    Raises:
        ValueError: one is no colour or occurs twice, or their number is wrong.
    """
    of_classes = [tuple(colour) for colour in colours]
    for name, colour in [*(("colours", colour) for colour in of_classes), ("ignore_colour", ignore_colour)]:
        if colour is not None and (len(colour) != 3 or not 0 <= min(colour) <= max(colour) <= 255):
            raise ValueError(f"{name}: expected red, green and blue from 0 to 255, got {list(colour)}")
    if not 2 <= len(set(of_classes)) == len(of_classes) == num_classes:
        raise ValueError(f"colours: expected {num_classes or 'several'} different colours, got {len(set(of_classes))}")
    if ignore_colour is not None and tuple(ignore_colour) in of_classes:
        raise ValueError(f"ignore_colour: expected a colour of no class, got {list(ignore_colour)}")


class _Images(Dataset):
    """The images of pairs, without their masks."""

    def __init__(self, pairs: Any, data: _Masks) -> None:
        self.files = [image for image, _ in pairs.pairs]
        self.data = data

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return self.data.unlabelled(self.files[index])


class _Pairs(Dataset):
    """Images (C, H, W) as bytes or floats and masks (H, W) of classes, as in the files or transformed."""

    def __init__(self, pairs: list[Pair], reader: ChannelReader, values: MaskValues, change: Any = None) -> None:
        self.pairs = pairs
        self.reader = reader
        self.values = values
        self.change = change

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Pixels:
        image_file, mask_file = self.pairs[index]
        mask = read_image(mask_file)
        image = self.reader.tensor(image_file, Annotated(mask.size))
        if mask.size != image.shape[:0:-1]:
            sizes = " × ".join(map(str, mask.size)), " × ".join(map(str, image.shape[:0:-1]))
            raise UserError(f"{mask_file.as_posix()}: is {sizes[0]} pixels, its image {sizes[1]}")
        sample = image, torch.from_numpy(self.values(mask, mask_file))
        return sample if self.change is None else self.change(sample)
