"""Folders of images, one per class."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.transforms import v2

from playbook import Data, UserError, nearest, split_indices
from src.data.vision.channels import ChannelReader
from src.data.vision.images import FORMATS, LONGEST, image_files, middle, reading_of, split_folder
from src.data.vision.normalise import Normalise

NEEDED = {"fit": "train_set", "validate": "val_set", "test": "test_set", "predict": "test_set"}  # by stage


class ImageFolder(Data):
    """Image files in root/train/CLASS/…, root/test/CLASS/… and, optionally, root/val/CLASS/….

    The folder val may also be named valid or validation; without it, part of train is used for validation.

    Classes are the folders of train in alphabetical order. Training images are cropped at random (Szegedy et al. 2015)
    and mirrored. Evaluation scales the shorter side to 8/7 of `image_size` and crops the centre.

    Args:
        root: folder that contains the splits.
        batch_size: samples per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        image_size: height and width of the net's input in pixels, S.
        crop: smallest share of the area that a training crop covers, in (0, 1]; 1 crops as evaluation does.
        flip: whether half of the training images are mirrored left to right.
        rand_augment: number of random changes of colour and shape per image, usually two or three (Cubuk et al. 2019);
            must be 0 for images that are neither grey nor RGB.
        grey: the same as channels=1, for older recipes.
        mean: mean to subtract from each channel, for values in [0, 1], such as [R, G, B]. Defaults to ImageNet's for
            RGB, 0.5 for grey images, and that of 100 training images for others.
        deviation: standard deviation to divide each channel by, such as [R, G, B]. Defaults to ImageNet's for RGB, 0.25
            for grey images, and that of 100 training images for others.
        val_share: share of train used for validation if there is no folder val, chosen with a fixed seed, in (0, 1).
        channels: channels of an image, C. Grey and RGB files are converted to 1 or 3 channels; any other number must be
            that of the files, such as 4 for RGBA or 5 for a TIFF of 5 bands or pages.
        value_range: values in the files that become 0 and 1. Defaults to 0 and 255 for files of 8 bits, 0 and 65535 for
            16 bits; required for floats.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        balanced: whether to sample every class equally often. The number of samples in an epoch stays the same: those
            of rare classes are repeated, each time augmented anew.
        check_files: whether to load every sample once before training, to count those that cannot be loaded.

    Shapes:
        image (B, C, S, S), normalised; target (B,), 0 to K - 1.

    Raises:
        ValueError: a value is out of range.
        UserError: there are no images, a class has none, or val or test has a class that train lacks.
    """

    formats = FORMATS

    def __init__(
        self,
        root: str,
        batch_size: int = 64,
        num_workers: int = 0,
        image_size: int = 224,
        crop: float = 0.25,
        flip: bool = True,
        rand_augment: int = 0,
        grey: bool = False,
        mean: Sequence[float] | None = None,
        deviation: Sequence[float] | None = None,
        val_share: float = 0.1,
        channels: int = 3,
        value_range: Sequence[float] | None = None,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        balanced: bool = False,
        check_files: bool = False,
    ) -> None:
        super().__init__(
            batch_size,
            num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
            balanced=balanced,
            check_files=check_files,
        )
        if image_size < 1:
            raise ValueError(f"image_size: expected at least 1 pixel, got {image_size}")
        if not 0 < crop <= 1:
            raise ValueError(f"crop: expected a share in (0, 1], got {crop}")
        if rand_augment < 0:
            raise ValueError(f"rand_augment: expected at least 0 changes, got {rand_augment}")
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        channels = 1 if grey else channels
        if rand_augment and channels not in (1, 3):
            raise ValueError(f"rand_augment: expected 0 for images of {channels} channels, got {rand_augment}")
        self.reader = ChannelReader(channels, value_range)
        self.picture = self.reader.picture
        self.normalise = Normalise(channels, mean, deviation)
        self.image_size = image_size
        self.root = Path(root)
        self.val_share = val_share
        finish = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), self.normalise]
        centre = [middle, v2.Resize(round(image_size * 8 / 7)), v2.CenterCrop(image_size)]
        part = [v2.RandomResizedCrop(image_size, scale=(crop, 1.0))] if crop < 1 else centre
        mirror = [v2.RandomHorizontalFlip()] if flip else []
        colour = [v2.RandAugment(rand_augment)] if rand_augment else []
        self.evaluated = v2.Compose([*centre, *finish])
        self.augment = _OnImage(v2.Compose([*part, *mirror, *colour, *finish]))
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if hasattr(self, NEEDED[stage]):  # read already: Lightning asks again for every stage
            return
        known = self.facts.get("classes")  # of a checkpoint
        val_folder, test_folder = (split_folder(self.root, split) for split in ("val", "test"))
        self.reader.take(self.facts)
        self.normalise.take(self.facts)
        needs_train = (
            known is None
            or not self.normalise.is_known
            or stage == "fit"
            or (stage == "validate" and not val_folder.is_dir())
        )
        train = self._train_files(known) if needs_train else {}
        classes = known or list(train)
        self.facts |= {"classes": classes, "image_shape": [self.reader.channels, self.image_size, self.image_size]}
        if train:
            self._hold_train(train, self._of_classes(classes, val_folder))
        elif stage == "validate":
            self.val_set = _Files(self._of_classes(classes, val_folder) or {}, classes, self.reader, self.evaluated)
        test = self._of_classes(classes, test_folder)
        self.test_set = _Files(test, classes, self.reader, self.evaluated) if test is not None else None
        self.facts |= self.normalise.values
        if train:
            self._tell_copies()
            self.check_loading()

    def _train_files(self, known: list[str] | None) -> dict[str, list[Path]]:
        """Lists the training images by class; classes without images are skipped."""
        train = files_by_class(self.root / "train")
        for name in [name for name, files in train.items() if not files]:
            self._leave_out(self.root / "train" / name)
            del train[name]
        self.leave_out_others([self.root / "train" / name for name in train])
        return train if known is None else self._of_known(known, train, self.root / "train")

    def _hold_train(self, train: dict[str, list[Path]], val: dict[str, list[Path]] | None) -> None:
        """Sets the training and validation sets; without a folder val, validation is taken from train."""
        classes = self.facts["classes"]
        whole = _Files(train, classes, self.reader)
        train_files = whole.files
        if val is not None:
            self.train_set = whole
            self.val_set = _Files(val, classes, self.reader, self.evaluated)
        else:
            train_part, val_part = split_indices(len(whole), [1 - self.val_share, self.val_share])
            self.train_set = Subset(whole, train_part)
            train_files = [whole.files[index] for index in train_part]
            self.val_set = Subset(_Files(train, classes, self.reader, self.evaluated), val_part)
        self.normalise.learn(train_files, self.reader, self.on_error)
        self.count_classes()

    def _tell_copies(self) -> None:
        files = {}
        for name, dataset in {"train": self.train_set, "val": self.val_set, "test": self.test_set}.items():
            if isinstance(dataset, Subset):
                whole: Any = dataset.dataset
                files[name] = [whole.files[index] for index in dataset.indices]
            elif dataset is not None:
                files[name] = dataset.files
        self.tell_copies(files)

    def read(self, source: Any) -> Tensor:
        """Reads an image (C, S, S) from a path or bytes, scaled, cropped and normalised as in evaluation."""
        self.reader.take(self.facts)
        self.normalise.take(self.facts)
        return self.evaluated(self.reader(source))

    def preprocessing(self) -> dict[str, Any] | None:
        channels = self.reader.channels
        if channels not in (1, 3) or self.reader.value_range is not None:
            return None  # such files are read by more than Pillow
        self.normalise.take(self.facts)
        side = self.image_size
        steps: list[dict[str, Any]] = [{"middle": LONGEST}, {"resize_shorter": round(side * 8 / 7)}]
        steps += [{"center_crop": [side, side]}, {"multiply": 1 / 255}]
        self.reader.take(self.facts)
        return reading_of(channels, steps, bits=16, background=self.reader.background, **self.normalise.values)

    def _loader(self, name: str, dataset: Any, shuffle: bool = False, **options: Any) -> DataLoader:
        if name != "test" and isinstance(self.val_set, Subset) and len(dataset) == 0:
            total = len(self.val_set.dataset)  # type: ignore[arg-type]  # it has a length
            text = f"{self.val_share} of {total} images in {self.root.as_posix()}/train leaves none for {name}"
            raise UserError(f"--data.val_share: {text}")
        return super()._loader(name, dataset, shuffle, **options)

    def _leave_out(self, folder: Path) -> None:
        """Ends the run because of a class without images; skips an empty folder with a warning."""
        other = next((file for file in sorted(folder.rglob("*")) if file.is_file() and file.name[0] != "."), None)
        content = "is empty" if other is None else f"holds {other.name}, expected images of {', '.join(FORMATS)}"
        text = f"{folder.as_posix()}: {content}"
        if other is not None and self.on_error == "stop":
            raise UserError(f"--data.root: {text}; --data.on_error skip leaves out the class")
        self._left_out("classes", 1, f"the class {text}")

    def _of_classes(self, classes: list[str], folder: Path) -> dict[str, list[Path]] | None:
        """Lists a split's images by class, or returns None if there is no such split; skips other classes."""
        if not folder.is_dir():
            return None
        by_class = files_by_class(folder)
        self.leave_out_others([folder / name for name in by_class])
        return self._of_known(classes, by_class, folder)

    def _of_known(self, classes: list[str], by_class: dict[str, list[Path]], folder: Path) -> dict[str, list[Path]]:
        """Keeps the known classes, by name; others end the run, or are skipped."""
        files = {name: of_class for name, of_class in by_class.items() if of_class}
        for name in sorted(files.keys() - set(classes)):
            if self.on_error == "stop":
                text = f"--data.root: {(folder / name).as_posix()}: training had no class of that name"
                known = ", ".join(classes[:5]) + (f" and {len(classes) - 5} more" if len(classes) > 5 else "")
                raise UserError(f"{text}, but {known}{nearest(name, classes)}; --data.on_error skip leaves it out")
            for file in files.pop(name):
                self._skip(file.as_posix(), f"{file.as_posix()}: training had no class {name}")
        return files


def files_by_class(folder: Path) -> dict[str, list[Path]]:
    """Lists the images of each folder in alphabetical order, without hidden folders.

    Raises:
        UserError: the folder is missing or holds no image.
    """
    if not folder.is_dir():
        hint = f"; use --data.root {folder.parent.parent.as_posix()}" if folder.name == folder.parent.name else ""
        raise UserError(f"--data.root: expected folders of images in {folder.as_posix()}, which does not exist{hint}")
    folders = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."]
    files = {path.name: image_files(path) for path in folders}
    if not any(files.values()):
        kinds = ", ".join(FORMATS)
        raise UserError(f"--data.root: expected {folder.as_posix()}/CLASS/…, images of {kinds}; found none")
    return files


class _Files(Dataset):
    """Images by index, with the number of their class."""

    def __init__(
        self, files_by_class: dict[str, list[Path]], classes: list[str], reader: ChannelReader, change: Any = None
    ) -> None:
        self.files = [file for files in files_by_class.values() for file in files]
        self.targets = [classes.index(name) for name, files in files_by_class.items() for _ in files]
        self.reader = reader
        self.change = change

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.reader(self.files[index])
        return image if self.change is None else self.change(image), self.targets[index]


class _OnImage:
    """Applies a transform to the image of a sample."""

    def __init__(self, change: Any) -> None:
        self.change = change

    def __call__(self, sample: tuple[Any, int]) -> tuple[Tensor, int]:
        return self.change(sample[0]), sample[1]
