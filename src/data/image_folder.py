"""Folders of images, one per class."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.transforms import v2

from playbook import Data, UserError, nearest, split_indices
from src.data.images import FORMATS, image_files, read_image, read_picture, split_folder, with_mode

NEEDED = {"fit": "train_set", "validate": "val_set", "test": "test_set", "predict": "test_set"}  # by stage


class ImageFolder(Data):
    """Image files in root/train/CLASS/…, root/test/CLASS/…, and root/val/CLASS/… or a part cut from train.

    The folder val may also be named valid or validation.

    Classes are the folders of train in alphabetical order. Training images are cropped at random (Szegedy et al. 2015)
    and mirrored. Evaluation scales the shorter side to 8/7 of `image_size` and crops the centre.

    Args:
        root: folder that contains the splits.
        batch_size: samples per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        image_size: height and width of the net's input in pixels, S.
        crop: smallest share of the area that a training crop covers, in (0, 1]; 1 crops as evaluation does.
        flip: whether half of the training images are mirrored left to right.
        rand_augment: number of random changes of colour and shape per image, usually two or three (Cubuk et al. 2019).
        grey: whether images are read as one channel instead of RGB.
        mean: mean to subtract from each channel, for values in [0, 1]. Defaults to ImageNet's, or 0.5 if grey.
        deviation: deviation to divide each channel by. Defaults to ImageNet's, or 0.25 if grey.
        val_share: share of train used for validation if there is no folder val, cut with a fixed seed, in (0, 1).
        loader: further options of Data.

    Shapes:
        image (B, 3, S, S), or (B, 1, S, S) if grey; target (B,), 0 to K - 1.

    Raises:
        ValueError: a value is out of range.
        UserError: there are no images, a class has none, or val or test has a class that train lacks.
    """

    formats = FORMATS
    picture = staticmethod(read_picture)

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
        **loader: Any,
    ) -> None:
        super().__init__(batch_size, num_workers, **loader)
        if image_size < 1:
            raise ValueError(f"image_size: expected at least 1 pixel, got {image_size}")
        if not 0 < crop <= 1:
            raise ValueError(f"crop: expected a share in (0, 1], got {crop}")
        if rand_augment < 0:
            raise ValueError(f"rand_augment: expected at least 0 changes, got {rand_augment}")
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        channels = 1 if grey else 3
        mean = mean or ([0.5] if grey else [0.485, 0.456, 0.406])
        deviation = deviation or ([0.25] if grey else [0.229, 0.224, 0.225])
        for name, values in {"mean": mean, "deviation": deviation}.items():
            if len(values) != channels:
                raise ValueError(f"{name}: expected {channels} values, one a channel, got {list(values)}")
        self.root = Path(root)
        self.mode = "L" if grey else "RGB"
        self.val_share = val_share
        self.mean, self.deviation = list(mean), list(deviation)
        finish = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, deviation)]
        centre = [_middle, v2.Resize(round(image_size * 8 / 7)), v2.CenterCrop(image_size)]
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
        needs_train = known is None or stage == "fit" or (stage == "validate" and not val_folder.is_dir())
        train = self._train_files(known) if needs_train else {}
        classes = known or list(train)
        self.facts |= {"classes": classes, "mean": self.mean, "deviation": self.deviation}
        self.class_names = classes
        if train:
            self._hold_train(train, self._of_classes(classes, val_folder))
        elif stage == "validate":
            self.val_set = _Files(self._of_classes(classes, val_folder) or {}, classes, self.mode, self.evaluated)
        test = self._of_classes(classes, test_folder)
        self.test_set = _Files(test, classes, self.mode, self.evaluated) if test is not None else None

    def _train_files(self, known: list[str] | None) -> dict[str, list[Path]]:
        """Lists the training images by class; a class without images is left out."""
        train = files_by_class(self.root / "train")
        for name in [name for name, files in train.items() if not files]:
            self._leave_out(self.root / "train" / name)
            del train[name]
        return train if known is None else self._of_known(known, train, self.root / "train")

    def _hold_train(self, train: dict[str, list[Path]], val: dict[str, list[Path]] | None) -> None:
        """Sets the training and validation sets; validation is cut from training if there is none."""
        classes = self.facts["classes"]
        whole = _Files(train, classes, self.mode)
        if val is not None:
            self.train_set = whole
            self.val_set = _Files(val, classes, self.mode, self.evaluated)
        else:
            train_part, val_part = split_indices(len(whole), [1 - self.val_share, self.val_share])
            self.train_set = Subset(whole, train_part)
            self.val_set = Subset(_Files(train, classes, self.mode, self.evaluated), val_part)
        self.count_classes()

    def read(self, source: Any) -> Tensor:
        """Reads an image (C, S, S) from a path or bytes, scaled, cut and normalised as in evaluation."""
        return self.evaluated(with_mode(read_image(source), self.mode))

    def _loader(self, name: str, dataset: Any, shuffle: bool = False, **options: Any) -> DataLoader:
        if name != "test" and isinstance(self.val_set, Subset) and len(dataset) == 0:
            total = len(self.val_set.dataset)  # type: ignore[arg-type]  # it has a length
            text = f"{self.val_share} of {total} images in {self.root.as_posix()}/train leaves none for {name}"
            raise UserError(f"--data.val_share: {text}")
        return super()._loader(name, dataset, shuffle, **options)

    def _leave_out(self, folder: Path) -> None:
        """Ends the run because of a class without images; leaves out an empty folder with a warning."""
        other = next((file for file in sorted(folder.rglob("*")) if file.is_file() and file.name[0] != "."), None)
        content = "is empty" if other is None else f"holds {other.name}, expected images of {', '.join(FORMATS)}"
        text = f"{folder.as_posix()}: {content}"
        if other is not None and self.on_error == "stop":
            raise UserError(f"--data.root: {text}; --data.on_error skip leaves out the class")
        self._left_out("classes", 1, f"the class {text}")

    def _of_classes(self, classes: list[str], folder: Path) -> dict[str, list[Path]] | None:
        """Lists a split's images by class, or returns None if there is no such split; other classes are left out."""
        if not folder.is_dir():
            return None
        return self._of_known(classes, files_by_class(folder), folder)

    def _of_known(self, classes: list[str], by_class: dict[str, list[Path]], folder: Path) -> dict[str, list[Path]]:
        """Keeps the classes that are known, under their names; others end the run, or are left out."""
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
        raise UserError(f"--data.root: expected folders of images in {folder.as_posix()}, which does not exist")
    folders = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."]
    files = {path.name: image_files(path) for path in folders}
    if not any(files.values()):
        kinds = ", ".join(FORMATS)
        raise UserError(f"--data.root: expected {folder.as_posix()}/CLASS/…, images of {kinds}; found none")
    return files


class _Files(Dataset):
    """Images by index, with the number of their class."""

    def __init__(
        self, files_by_class: dict[str, list[Path]], classes: list[str], mode: str, change: Any = None
    ) -> None:
        self.files = [file for files in files_by_class.values() for file in files]
        self.targets = [classes.index(name) for name, files in files_by_class.items() for _ in files]
        self.mode = mode
        self.change = change

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = with_mode(read_image(self.files[index]), self.mode)
        return image if self.change is None else self.change(image), self.targets[index]


def _middle(image: Image.Image) -> Image.Image:
    """Crops an image more than 8 times as long as wide to its middle; scaling all of it could take gigabytes."""
    most = 8 * min(image.size)
    left, top = (max((side - most) // 2, 0) for side in image.size)  # as much is left out on the other side
    return image.crop((left, top, image.width - left, image.height - top))


class _OnImage:
    """Applies a change to the image of a sample."""

    def __init__(self, change: Any) -> None:
        self.change = change

    def __call__(self, sample: tuple[Image.Image, int]) -> tuple[Tensor, int]:
        return self.change(sample[0]), sample[1]
