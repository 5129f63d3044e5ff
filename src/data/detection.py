"""Images with boxes, in the formats of Pascal VOC and COCO."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

from playbook import Data, UserError
from src.data.annotations import LEAST_SHARE, Annotation, Checks
from src.data.coco import read_coco
from src.data.images import lines_of, read_image, with_mode
from src.data.voc import read_voc

GREY = [124, 116, 104]  # ImageNet's mean


def detection_collate(samples: list[Any]) -> tuple[list[Any], list[Any]]:
    """Collates samples into a list of images and a list of targets, as sizes and numbers of boxes differ."""
    images, targets = zip(*samples, strict=True)
    return list(images), list(targets)


class _Detection(Data):
    """Base of the data sets below: checks boxes and changes images together with their boxes.

    Args:
        batch_size: images per batch and process, B, at least 1.
        image_size: height and width in pixels to which images are resized, [H, W]. Defaults to the size of each file.
        flip: whether half of the training images are mirrored left to right.
        crop: whether parts of training images are cut out so that they keep some of the boxes (Liu et al. 2016).
        zoom_out: largest ratio of the side of a grey canvas, on which half of the training images are placed, to that
            of the image, at least 1; 1 turns it off.
        colour: largest change of brightness, contrast and saturation of training images, as a share in [0, 1]; 0 turns
            it off.
        loader: further options of Data.
    """

    collate = staticmethod(detection_collate)

    def __init__(
        self,
        batch_size: int = 8,
        image_size: Sequence[int] | None = None,
        flip: bool = True,
        crop: bool = False,
        zoom_out: float = 1.0,
        colour: float = 0.0,
        **loader: Any,
    ) -> None:
        super().__init__(batch_size, **loader)
        if image_size is not None and (len(image_size) != 2 or min(image_size) < 1):
            raise ValueError(f"image_size: expected [H, W] of at least 1 pixel each, got {list(image_size)}")
        if zoom_out < 1:
            raise ValueError(f"zoom_out: expected at least 1, got {zoom_out}")
        if not 0 <= colour <= 1:
            raise ValueError(f"colour: expected a share in [0, 1], got {colour}")
        self.checks = Checks(self.on_error)
        self.class_names: list[str] = []
        changes = {
            v2.ColorJitter(colour, colour, colour): colour > 0,
            v2.RandomZoomOut(fill=GREY, side_range=(1, zoom_out)): zoom_out > 1,
            v2.RandomIoUCrop(): crop,
            v2.RandomHorizontalFlip(): flip,
        }
        chosen = [change for change, is_chosen in changes.items() if is_chosen]
        resize = [v2.Resize(list(image_size))] if image_size is not None else []
        finish = [v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()]
        self.evaluated = v2.Compose([*resize, *finish])
        # boxes of which a crop left nothing are dropped
        clean = [v2.ClampBoundingBoxes(), _without_empty]
        self.augment = v2.Compose([*chosen, *resize, *clean, *finish])

    def hold(
        self, classes: dict[Any, int], train: list[Annotation], val: list[Annotation], test: list[Annotation] | None
    ) -> None:
        """Sets the three data sets, and reports once what was left out of them.

        Args:
            classes: number of every class by its name.
            train: annotations to train with.
            val: annotations to validate with.
            test: annotations to test with, or to predict with if their boxes are not known; None for neither.
        """
        self.train_set = _Detections(train, classes, self.checks)
        self.val_set = _Detections(val, classes, self.checks, self.evaluated, with_crowds=True)
        self.predict_set = None
        if test is not None:
            self.predict_set = _Detections(test, classes, self.checks, self.evaluated, with_crowds=True)
        is_known = test is not None and any(annotation.boxes is not None for annotation in test)
        self.test_set = self.predict_set if is_known else None
        counts = {"left_out_boxes": len(self.checks.left_out), "clipped_boxes": len(self.checks.cut)}
        self.counts = {name: count for name, count in counts.items() if count}
        if self.trainer is None or self.trainer.is_global_zero:
            self.checks.tell()

    def predict_dataloader(self) -> DataLoader:
        if self.predict_set is None:
            return super().predict_dataloader()
        return self._loader("test", self.predict_set)


class VOCDetection(_Detection):
    """Boxes in the format of Pascal VOC (Everingham et al. 2010): root/VOCdevkit/VOC2007, with an XML file per image.

    Corners in the files count pixels from 1 and include the last one; left and top are moved by 1, as in Detectron2.
    Boxes whose corners coincide have no area. Objects marked as difficult count like all others.

    Args:
        root: folder that contains VOCdevkit.
        year: year in the name of the folder, as in VOC2007.
        train: list in ImageSets/Main of the images to train with, such as train or trainval.
        val: list of the images to validate with.
        test: list of the images to test with. If the list is missing there is no test; without boxes, only predictions.
        class_names: names of the classes 0 to K - 1. Defaults to those of the training set in alphabetical order.
        options: further options of _Detection and Data; on_error also applies to broken boxes.

    Shapes:
        list of B images (3, H, W) in [0, 1], list of B dicts: boxes (N, 4) as left, top, right, bottom in pixels,
        labels (N,) and image_id; image_id alone if boxes are not known.

    Raises:
        ValueError: a value is out of range.
        UserError: a list is missing or, with on_error stop, a box or a file of boxes cannot be used.
    """

    def __init__(
        self,
        root: str = "data",
        year: int = 2007,
        train: str = "train",
        val: str = "val",
        test: str = "test",
        class_names: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.folder = Path(root) / "VOCdevkit" / f"VOC{year}"
        self.lists = [self.folder / "ImageSets" / "Main" / f"{name}.txt" for name in (train, val, test)]
        if class_names is not None and len(set(class_names)) != len(class_names):
            raise ValueError(f"class_names: expected different names, got {list(class_names)}")
        self.given_names = class_names
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if self.class_names:  # read already: Lightning asks again for every stage
            return
        for option, file in zip(("train", "val"), self.lists, strict=False):
            if not file.is_file():
                options = f"--data.{option}, --data.root or --data.year"
                raise UserError(f"{options}: expected a list of images {file.as_posix()}, which does not exist")
        train, val, *test = (
            read_voc(self.folder, _names(file), self.checks, may_lack_boxes=file == self.lists[2])
            for file in self.lists
            if file.is_file()
        )
        if not train and self.given_names is None:
            raise UserError(
                f"--data.train: {self.lists[0].as_posix()}: lists no images, so the classes are unknown; "
                "--data.class_names gives them"
            )
        labels = {box.label for annotation in train for box in annotation.boxes or [] if box.label is not None}
        self.class_names = sorted(labels) if self.given_names is None else list(self.given_names)
        self.hold({name: k for k, name in enumerate(self.class_names)}, train, val, test[0] if test else None)


class COCODetection(_Detection):
    """Boxes in the format of COCO (Lin et al. 2014): one JSON of images, categories and annotations per split.

    Classes are the training set's categories in the order of their ids; the other splits are matched by name.
    Training leaves out crowds and keeps images without boxes.

    Args:
        root: folder to which the other paths are relative.
        train_annotations: JSON of the images to train with.
        train_images: folder of these images.
        val_annotations: JSON of the images to validate with.
        val_images: folder of these images.
        test_annotations: JSON of the images to test with. Defaults to no test; without boxes there are only
            predictions.
        test_images: folder of these images.
        options: further options of _Detection and Data; on_error also applies to broken boxes.

    Shapes:
        list of B images (3, H, W) in [0, 1], list of B dicts: boxes (N, 4) as left, top, right, bottom in pixels,
        labels (N,) and image_id of the JSON; image_id alone if boxes are not known.

    Raises:
        ValueError: a value is out of range.
        UserError: a file is not in COCO's format or has an id twice or, with on_error stop, a box cannot be used.
    """

    def __init__(
        self,
        root: str = "data",
        train_annotations: str = "annotations/instances_train2017.json",
        train_images: str = "train2017",
        val_annotations: str = "annotations/instances_val2017.json",
        val_images: str = "val2017",
        test_annotations: str | None = None,
        test_images: str = "test2017",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.root = Path(root)
        self.splits = [(train_annotations, train_images), (val_annotations, val_images)]
        if test_annotations is not None:
            self.splits.append((test_annotations, test_images))
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if self.class_names:  # read already: Lightning asks again for every stage
            return
        needed = {"fit": self.splits[:2], "validate": self.splits[1:2]}.get(stage, [])  # predict takes files without
        known: dict[Any, str] | None = None
        read = []
        for split in self.splits:
            file, images = (self.root / name for name in split)
            names, annotations = read_coco(file, images, self.checks, known, needs_boxes=split in needed)
            known = dict(sorted(names.items())) if known is None else known  # by category id
            read.append(annotations)
        assert known is not None
        self.class_names = list(known.values())
        train, val, *test = read
        self.hold({name: k for k, name in enumerate(self.class_names)}, train, val, test[0] if test else None)


def _without_empty(sample: tuple[Tensor, dict[str, Any]]) -> tuple[Tensor, dict[str, Any]]:
    """Drops boxes of which a crop left nothing. torchvision's version drops every box below a pixel."""
    image, target = sample
    height, width = target["boxes"].canvas_size
    least = LEAST_SHARE / 8 * torch.tensor([width, height])  # rounding or zooming out shall not drop what was read
    has_area = (target["boxes"][:, 2:] - target["boxes"][:, :2] >= least).all(dim=1)  # (N,)
    return image, {**target, "boxes": target["boxes"][has_area], "labels": target["labels"][has_area]}


class _Detections(Dataset):
    """Images (3, H, W) with their usable boxes."""

    def __init__(
        self,
        annotations: list[Annotation],
        classes: dict[Any, int],
        checks: Checks,
        change: Any = None,
        with_crowds: bool = False,
    ) -> None:
        self.annotations: list[Annotation] = []
        self.files = [annotation.file for annotation in annotations]  # the loader names them
        self.boxes: list[Tensor] = []
        self.labels: list[Tensor] = []
        self.crowds: list[Tensor] = []
        for annotation in annotations:
            boxes = [box for box in annotation.boxes or [] if with_crowds or not box.is_crowd]
            clipped = [(box, checks.clipped(box, annotation.size, classes)) for box in boxes]
            rows = [(corners, classes[box.label], box.is_crowd) for box, corners in clipped if corners is not None]
            corners, labels, crowds = zip(*rows, strict=True) if rows else ((), (), ())
            self.boxes.append(torch.tensor(corners, dtype=torch.float32).view(-1, 4))  # (N, 4)
            self.labels.append(torch.tensor(labels, dtype=torch.int64))  # (N,)
            self.crowds.append(torch.tensor(crowds, dtype=torch.int64))  # (N,)
            # COCO's 860,000 boxes as objects would stay in the memory of every worker
            self.annotations.append(replace(annotation, boxes=None if annotation.boxes is None else []))
        self.change = change

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, dict[str, Any]]:
        annotation = self.annotations[index]
        if annotation.failure:
            raise UserError(annotation.failure)
        image = with_mode(read_image(annotation.file), "RGB")
        target: dict[str, Any] = {"image_id": annotation.image_id}
        if annotation.boxes is not None:
            if image.size != annotation.size:
                sizes = " × ".join(map(str, image.size)), " × ".join(map(str, annotation.size))
                raise UserError(f"{annotation.file.as_posix()}: is {sizes[0]} pixels, {sizes[1]} in its annotation")
            canvas: Any = image.size[::-1]
            boxes: Any = tv_tensors.BoundingBoxes(self.boxes[index], format="XYXY", canvas_size=canvas)  # type: ignore[call-overload]  # takes tensors
            target |= {"boxes": boxes, "labels": self.labels[index]}
            if self.crowds[index].any():  # detections inside a crowd count neither as hits nor as errors
                target["iscrowd"] = self.crowds[index]
        sample = tv_tensors.Image(image), target
        if self.change is None:
            return sample
        changed, target = self.change(sample)
        if changed.shape[-2:] != image.size[::-1]:
            target["file_size"] = image.size  # width and height, so that predictions can be given in pixels of the file
        return changed, target


def _names(file: Path) -> list[str]:
    """Names of images, one per line; lists of a single class append -1, 0 or 1."""
    return [re.sub(r"\s+(-1|0|1)$", "", line) for line in lines_of(file)]
