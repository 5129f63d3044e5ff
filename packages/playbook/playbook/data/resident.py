"""Images that fit into memory: stored on the device as bytes, and batched and augmented there."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from playbook.data.augment import cutout, flip, resized_crop, translate
from playbook.data.base import Data
from playbook.data.splits import split_indices
from playbook.errors import UserError
from playbook.facts import unknown_classes
from playbook.seeding import derived_seed

NUM_DRAWS = 7  # random numbers per sample and epoch


class ResidentImages(Data):
    """Keeps a whole data set in device memory as uint8 and augments it there, batch by batch. Subclasses read the data.

    The random numbers of sample i in epoch e come from a table that depends only on (seed, e), so batches are bitwise
    the same from any position, and for any batch size and number of ranks (with crop, up to rounding), as with Data.
    With `balanced`, the table has a row for each position in the epoch. Images are normalised by the mean and standard
    deviation of each channel over the training images.

    Args:
        batch_size: samples per batch and process, B, at least 1.
        val_share: share of the training images used for validation, chosen with a fixed seed, in (0, 1).
        num_train: number of the remaining images to train on, the same ones for every seed. Defaults to all of them.
        flip: whether to flip training images horizontally with probability 0.5.
        translate: largest translation of training images in pixels, padded by reflection; 0 turns it off.
        crop: smallest share of a training image's area that a random resized crop covers, in (0, 1]; 1 turns it off.
            The aspect ratio varies by up to 4:3.
        cutout: side in pixels of a square that is set to the mean in each training image; 0 turns it off.
        num_workers: number of loader processes; above 0, the images stay in host memory and the processes make the
            batches.
        on_error: whether a sample that cannot be read stops the run (`stop`) or is left out and counted (`skip`).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        balanced: whether to sample every class equally often, as with Data.

    Shapes:
        image (B, C, H, W), normalised; target (B,), 0 to K - 1.

    Raises:
        ValueError: a value is out of range.
        UserError: there are too few images, or test images have a different size.
    """

    collate = None  # batches are made at once

    def __init__(
        self,
        batch_size: int = 512,
        val_share: float = 0.1,
        num_train: int | None = None,
        flip: bool = False,
        translate: int = 0,
        crop: float = 1.0,
        cutout: int = 0,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        balanced: bool = False,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error, timeout_s, balanced)
        for name, value in {"translate": translate, "cutout": cutout}.items():
            if value < 0:
                raise ValueError(f"{name}: expected at least 0 pixels, got {value}")
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        if not 0 < crop <= 1:
            raise ValueError(f"crop: expected a share in (0, 1], got {crop}")
        self.val_share = val_share
        self.num_train = num_train
        self.flip = flip
        self.translate = translate
        self.crop = crop
        self.cutout = cutout

    def hold(
        self,
        train: tuple[Tensor, Tensor],
        test: tuple[Tensor, Tensor],
        class_names: Sequence[str] | None = None,
        file_names: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Sets the three sets from the official splits.

        Args:
            train: images (N, C, H, W) uint8 and targets (N,).
            test: likewise.
            class_names: names of the classes 0 to K - 1.
            file_names: names of the images of train and of test. Default to their numbers, as in test:17.
        """
        if class_names is not None:
            train, test = ((images, self._numbered(targets, class_names)) for images, targets in (train, test))
        images, targets = train
        if len(images) < 2:
            raise UserError(f"--data: expected at least 2 images to train and validate with, got {len(images)}")
        if test[0].shape[1:] != images.shape[1:]:
            actual, expected = (" × ".join(map(str, part.shape[1:])) for part in (test[0], images))
            raise UserError(f"--data: expected test images of {expected} values as those to train with, got {actual}")
        side = min(images.shape[2:])
        if self.translate >= side:
            raise UserError(f"translate: expected less than the image size of {side} pixels, got {self.translate}")
        num_val = min(max(round(len(images) * self.val_share), 1), len(images) - 1)
        shares = [1 - num_val / len(images), num_val / len(images)]
        train_indices, val = (torch.tensor(part) for part in split_indices(len(images), shares))
        if self.num_train is not None and not 1 <= self.num_train <= len(train_indices):
            raise UserError(f"num_train: expected 1 to {len(train_indices)} images, got {self.num_train}")
        train_indices = train_indices[: self.num_train]
        if "mean" not in self.facts:  # of a checkpoint
            mean, deviation = mean_and_deviation(images[train_indices])
            shape = list(images.shape[1:])
            self.facts |= {"image_shape": shape, "mean": mean.tolist(), "deviation": deviation.tolist()}
        statistics = torch.tensor(self.facts["mean"]), torch.tensor(self.facts["deviation"])
        counts = {"train": len(images), "test": len(test[0])}
        numbers = [[f"{split}:{index}" for index in range(count)] for split, count in counts.items()]
        train_names, test_names = file_names or numbers
        self.train_set = _Held(images[train_indices], targets[train_indices], statistics, self)
        self.val_set = _Held(images[val], targets[val], statistics)
        self.test_set = _Held(*test, statistics)
        if class_names is not None:
            self.count_classes()
        self._names = {  # by data set
            id(self.train_set): [train_names[index] for index in train_indices.tolist()],
            id(self.val_set): [train_names[index] for index in val.tolist()],
            id(self.test_set): test_names,
        }

    def _numbered(self, targets: Tensor, class_names: Sequence[str]) -> Tensor:
        """Targets (N,) with a checkpoint's class numbers, or else their own."""
        known = self.facts.setdefault("classes", list(class_names))
        if unknown := [name for name in class_names if name not in known]:
            raise UserError(f"--data: {unknown_classes(unknown, known, type(self).__name__)}")
        return torch.tensor([known.index(name) for name in class_names])[targets]

    def ids(self, dataset: Any) -> Sequence[str]:
        return self._names[id(dataset)]

    def prepared(self, image: Tensor) -> Tensor:
        """Normalises bytes (C, H, W) as in evaluation, by the mean and deviation in `facts`."""
        mean, deviation = (torch.tensor(self.facts[name])[:, None, None] for name in ("mean", "deviation"))
        return (image.to(mean.dtype) - mean) / deviation

    def train_dataloader(self) -> DataLoader:
        return self._loader("train", self.train_set, shuffle=True)

    def _loader(self, name: str, dataset: Any, shuffle: bool = False, **options: Any) -> DataLoader:
        strategy = getattr(self.trainer, "strategy", None)
        if strategy is not None and self.num_workers == 0:
            dataset.to(strategy.root_device)
            options["pin_memory"] = False  # it is where it is needed
        return super()._loader(name, dataset, shuffle, **options)

    def change(self, image: Tensor, draws: Tensor) -> Tensor:
        """Augments bytes (B, C, H, W) with uniform random numbers (B, NUM_DRAWS) in [0, 1)."""
        height, width = image.shape[2:]
        draw = draws.unbind(dim=1)
        if self.translate:
            down, right = ((part * (2 * self.translate + 1)).long() - self.translate for part in draw[:2])
            image = translate(image, down, right)
        if self.crop < 1:
            area = self.crop + (1 - self.crop) * draw[2]  # Szegedy et al. 2015 draw area and ratio of the sides
            side = area.sqrt()
            # one side is longer, the other shorter: together 3:4 to 4:3, as far as the image reaches
            stretch = ((4 / 3) ** (draw[3] - 0.5)).clamp(side, 1 / side)
            high, wide = side * stretch, side / stretch
            top, left = draw[4] * (1 - high) * height, draw[5] * (1 - wide) * width
            image = resized_crop(image.float(), top, left, high * height, wide * width)
        return flip(image, draw[6] < 0.5) if self.flip else image


class _Held(Dataset):
    """Images and targets as tensors, of which a batch is taken at once."""

    def __init__(
        self, images: Tensor, targets: Tensor, statistics: tuple[Tensor, Tensor], data: ResidentImages | None = None
    ) -> None:
        self.images, self.targets = images, targets
        self.mean, self.deviation = (value[:, None, None] for value in statistics)  # (C, 1, 1)
        self.data = data  # of a training set: how it is changed
        self._epoch = -1
        self._draws = torch.empty(0)

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device) -> None:
        self.images, self.targets = self.images.to(device), self.targets.to(device)
        self.mean, self.deviation = self.mean.to(device), self.deviation.to(device)

    def __getitem__(self, key: Any) -> tuple[Tensor, Tensor]:
        image, target = self.__getitems__([key])
        return image[0], target[0]

    def __getitems__(self, keys: list[Any]) -> list[Tensor]:
        epochs, indices, draw_numbers = zip(
            *[key if isinstance(key, tuple) else (0, key, key) for key in keys], strict=True
        )
        index = torch.tensor(indices).to(self.images.device)
        image, target = self.images[index], self.targets[index]
        if self.data is None:
            return [self._normalised(image), target]
        draws = self._drawn(self.data.seed, epochs[0])[torch.tensor(draw_numbers).to(self.images.device)]
        image = self._normalised(self.data.change(image, draws))
        if self.data.cutout:
            row, column = (draws[:, -2:] * torch.tensor(image.shape[2:], device=draws.device)).long().unbind(1)
            image = cutout(image, row, column, self.data.cutout)
        return [image, target]

    def _normalised(self, image: Tensor) -> Tensor:
        """Images (B, C, H, W), which may be overwritten: they are a copy."""
        return image.to(self.mean.dtype).sub_(self.mean).div_(self.deviation)

    def _drawn(self, seed: int, epoch: int) -> Tensor:
        """The epoch's random numbers (N, NUM_DRAWS + 2); drawn on the CPU, so that all devices have the same."""
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(derived_seed(seed, epoch, len(self)))
            self._draws = torch.rand(len(self), NUM_DRAWS + 2, generator=generator).to(self.images.device)
            self._epoch = epoch
        return self._draws


def mean_and_deviation(images: Tensor) -> tuple[Tensor, Tensor]:
    """Of each channel of bytes (N, C, H, W), (C,) each, in float32; exact sums, a part of the images at a time."""
    total = square = torch.zeros(images.shape[1], dtype=torch.float64)
    for part in images.split(4096):
        values = part.double()
        total, square = total + values.sum(dim=(0, 2, 3)), square + values.square().sum(dim=(0, 2, 3))
    count = images.numel() / images.shape[1]
    mean = total / count
    deviation = (square / count - mean.square()).clamp(min=0).sqrt()
    return mean.float(), deviation.clamp(min=1).float()  # a channel of one colour stays finite
