"""Images with class masks: your own folders, and the Oxford-IIIT Pet data set."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from playbook import Data, UserError, nearest, split_indices
from src.data.channels import ChannelReader
from src.data.images import FORMATS, files_by_name, lines_of, name_files, read_image, reading_of, split_folder
from src.data.mask_change import PairChange, Pixels
from src.data.normalise import Normalise
from src.data.recolour import recolour
from src.data.vision import download

IGNORED = 255  # in batches: pixels without a class, unless the user's ignore_index is a number of no class
LOSSLESS = (".bmp", ".gif", ".tif", ".tiff")  # formats of masks if there is no PNG
Pair = tuple[Path, Path]  # an image and its mask


class _Masks(Data):
    """Base of the data sets below: maps mask values to classes, resizes, and crops image and mask alike.

    Args:
        classes: number of the class for each mask value.
        image_size: height and width in pixels to which images and masks are resized, [H, W].
        val_share: share of the training images used for validation, in (0, 1).
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
        loader: further options of Data.
    """

    formats = FORMATS
    hint: ClassVar[str] = ""  # for a mask with unexpected values

    def __init__(
        self,
        classes: dict[int, int],
        image_size: Sequence[int],
        val_share: float,
        flip: bool = True,
        crop: float = 0.5,
        colour: float = 0.2,
        mean: Sequence[float] | None = None,
        deviation: Sequence[float] | None = None,
        class_names: Sequence[str] | None = None,
        num_classes: int = 2,
        channels: int = 3,
        value_range: Sequence[float] | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        if len(image_size) != 2 or min(image_size) < 1:
            raise ValueError(f"image_size: expected [H, W] of at least 1 pixel each, got {list(image_size)}")
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        if not 0 < crop <= 1:
            raise ValueError(f"crop: expected a share in (0, 1], got {crop}")
        if not 0 <= colour <= 1:
            raise ValueError(f"colour: expected a share in [0, 1], got {colour}")
        if class_names is not None and (len(class_names) != num_classes or len(set(class_names)) != num_classes):
            raise ValueError(f"class_names: expected {num_classes} different names, got {list(class_names)}")
        self.classes = classes
        self.num_classes = num_classes
        self.class_names = None if class_names is None else list(class_names)
        self.val_share = val_share
        self.reader = ChannelReader(channels, value_range)
        self.picture = self.reader.picture
        self.normalise = Normalise(channels, mean, deviation)
        normalise = v2.Compose([v2.ToDtype(torch.float32, scale=True), self.normalise])
        part = v2.RandomResizedCrop(list(image_size), scale=(crop, 1)) if crop < 1 else None
        change_of_colour = recolour(channels, colour) if colour else None
        self.evaluated = PairChange(image_size, normalise)
        self.augment = PairChange(image_size, normalise, part, change_of_colour, flip)

    def hold(self, train: list[Pair], val: list[Pair] | None, test: list[Pair] | None) -> None:
        """Sets the three data sets; without one for validation, it is taken from train."""
        if val is None:
            train_part, val_part = split_indices(len(train), [1 - self.val_share, self.val_share])
            if not train_part or not val_part:
                raise UserError(f"--data.val_share: {self.val_share} of {len(train)} images leaves one part empty")
            train, val = [train[i] for i in train_part], [train[i] for i in val_part]
        self._name_classes()
        self.normalise.take(self.facts)
        self.normalise.learn([image for image, _ in train], self.reader, self.on_error)
        self.facts |= self.normalise.values
        self.train_set = _Pairs(train, self)
        self.val_set = _Pairs(val, self, self.evaluated)
        self.test_set = _Pairs(test, self, self.evaluated) if test is not None else None
        if self.test_set is not None:
            self.predict_set = _Images(self.test_set, self)  # so that masks come out in the size of their files

    def _name_classes(self) -> None:
        """Sets the names of the classes; if a checkpoint has named them, sets their numbers to the checkpoint's."""
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
        return self._prepared(self.reader.tensor(source), resize)

    def unlabelled(self, source: Any, resize: bool = True) -> tuple[Tensor, dict[str, Tensor]]:
        pixels = self.reader.tensor(source)
        return self._prepared(pixels, resize), {"file_size": torch.tensor(pixels.shape[1:])}  # H, W

    def preprocessing(self) -> dict[str, Any] | None:
        channels = self.reader.channels
        if channels not in (1, 3) or self.reader.value_range is not None:
            return None  # such files are read by more than Pillow
        self.normalise.take(self.facts)
        steps: list[dict[str, Any]] = [{"resize": self.evaluated.image_size}, {"multiply": 1 / 255}]
        return reading_of(channels, steps, bits=16, **self.normalise.values)

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
    or grey values. Without a folder val, part of train is used for validation; without a folder test there is no test.

    Args:
        root: folder that contains the splits.
        num_classes: number of classes K, at least 2.
        class_names: names of the classes 0 to K - 1. Default to their numbers.
        values: mask values of the classes 0 to K - 1, such as [0, 255]. Defaults to the class ids themselves.
        ignore_index: mask value of pixels without a class, often 255. Defaults to none. If it is below num_classes,
            batches contain 255 instead, so set the task's ignore_index to 255.
        image_size: height and width in pixels to which images and masks are resized, [H, W].
        val_share: share of train used for validation if there is no folder val, chosen with a fixed seed, in (0, 1).
        options: further options of all data sets with masks, and of Data.

    Shapes:
        image (B, C, H, W), normalised; mask (B, H, W), 0 to K - 1, or ignore_index or 255.

    Raises:
        ValueError: a value is out of range.
        UserError: there are no images or, with on_error stop, an image or a mask lacks its counterpart.
    """

    hint: ClassVar[str] = "; see --data.num_classes"

    def __init__(
        self,
        root: str,
        num_classes: int = 2,
        class_names: Sequence[str] | None = None,
        values: Sequence[int] | None = None,
        ignore_index: int | None = None,
        image_size: Sequence[int] = (256, 256),
        val_share: float = 0.2,
        **options: Any,
    ) -> None:
        if num_classes < 2:
            raise ValueError(f"num_classes: expected at least 2, got {num_classes}")
        values = range(num_classes) if values is None else values
        if len(set(values)) != num_classes or not 0 <= min(values) <= max(values) < 2**16:
            raise ValueError(f"values: expected {num_classes} numbers from 0 to 65535, got {list(values)}")
        if ignore_index is not None and (ignore_index in values or not 0 <= ignore_index < 2**16):
            raise ValueError(f"ignore_index: expected a value of no class from 0 to 65535, got {ignore_index}")
        classes = {value: k for k, value in enumerate(values)}
        if ignore_index is not None:
            if ignore_index < num_classes > IGNORED:
                raise ValueError(f"ignore_index: expected at least {num_classes} as num_classes, got {ignore_index}")
            classes[ignore_index] = ignore_index if ignore_index >= num_classes else IGNORED
        super().__init__(classes, image_size, val_share, class_names=class_names, num_classes=num_classes, **options)
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
        self.hold(train, val, test)

    def _pairs_of(self, folder: Path) -> list[Pair]:
        """Pairs images and masks by name; files without a counterpart are skipped."""
        images, masks = files_by_name(folder / "images", FORMATS), files_by_name(folder / "masks", (".png",))
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


class OxfordPets(_Masks):
    """Oxford-IIIT Pet (Parkhi et al. 2012): 7,349 photos of cats and dogs, 3,680 to train and validate, 3,669 to test.

    Every pixel belongs to the pet (0), to the background (1) or to the border between them (2).

    Args:
        root: folder that holds oxford-iiit-pet/images and annotations, or into which torchvision downloads them.
        border: class makes it the third class; ignore replaces it by 255.
        image_size: height and width in pixels to which images and masks are resized, [H, W].
        val_share: share of the official trainval used for validation, chosen with a fixed seed, in (0, 1).
        options: further options of all data sets with masks, and of Data.

    Shapes:
        image (B, 3, H, W), normalised; mask (B, H, W), 0 to 2, or 0, 1 and 255.

    Raises:
        ValueError: a value is out of range.
        UserError: the data is missing and cannot be downloaded or, with on_error stop, a file is missing.
    """

    def __init__(
        self,
        root: str = "data",
        border: Literal["class", "ignore"] = "class",
        image_size: Sequence[int] = (128, 128),
        val_share: float = 0.2,
        **options: Any,
    ) -> None:
        if border not in ("class", "ignore"):
            raise ValueError(f"border: expected class or ignore, got {border}")
        names = ["pet", "background", *(["border"] if border == "class" else [])]
        classes = {1: 0, 2: 1, 3: 2 if border == "class" else 255}
        super().__init__(classes, image_size, val_share, class_names=names, num_classes=len(names), **options)
        self.root = Path(root)
        self.save_hyperparameters()

    def prepare_data(self) -> None:
        folder = self.root / "oxford-iiit-pet"
        if not (folder / "annotations" / "trimaps").is_dir() or not (folder / "images").is_dir():
            expected = f"{folder.name}/images and annotations"
            download("OxfordIIITPet", self.root, folder.name, expected, target_types="segmentation")

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # read already: Lightning asks again for every stage
            return
        folder = self.root / "oxford-iiit-pet"
        splits = []
        for name in ("trainval", "test"):
            lines = lines_of(folder / "annotations" / f"{name}.txt")
            names = [line.split()[0] for line in lines if not line.startswith("#")]
            images, masks = folder / "images", folder / "annotations" / "trimaps"
            pairs = [(images / f"{name}.jpg", masks / f"{name}.png") for name in names]
            self.leave_out("not there", [file for pair in pairs for file in pair if not file.is_file()])
            splits.append([pair for pair in pairs if all(file.is_file() for file in pair)])
        self.hold(splits[0], None, splits[1])


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

    def __init__(self, pairs: list[Pair], data: _Masks, change: Any = None) -> None:
        self.pairs = pairs
        self.hint = data.hint
        self.reader = data.reader
        self.table = np.full(max(data.classes) + 2, -1)  # class of a value; -1 for one that has none, as the last here
        self.table[list(data.classes)] = list(data.classes.values())
        self.change = change

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Pixels:
        image_file, mask_file = self.pairs[index]
        mask = read_image(mask_file)
        image = self.reader.tensor(image_file, mask.size)
        if mask.mode not in ("1", "L", "P", "I", "I;16"):
            raise UserError(f"{mask_file.as_posix()}: expected palette or grey values, got {mask.mode}")
        if mask.size != image.shape[:0:-1]:
            sizes = " × ".join(map(str, mask.size)), " × ".join(map(str, image.shape[:0:-1]))
            raise UserError(f"{mask_file.as_posix()}: is {sizes[0]} pixels, its image {sizes[1]}")
        sample = image, torch.from_numpy(self._classes(mask, mask_file))
        return sample if self.change is None else self.change(sample)

    def _classes(self, mask: Image.Image, file: Path) -> np.ndarray:
        values = np.asarray(mask).astype(np.int64)  # (H, W)
        classes = self.table[values.clip(0, len(self.table) - 1)]
        if (classes < 0).any():
            unknown = ", ".join(map(str, np.unique(values[classes < 0])[:5]))
            known = ", ".join(map(str, np.flatnonzero(self.table >= 0)))
            raise UserError(f"{file.as_posix()}: contains {unknown}, expected only {known}{self.hint}")
        return classes
