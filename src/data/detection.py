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
from src.data.channels import ChannelReader
from src.data.coco import read_coco
from src.data.images import FORMATS, lines_of
from src.data.recolour import recolour
from src.data.voc import read_voc

GREY = [124, 116, 104]  # ImageNet's mean; the one of green where there are other channels


def detection_collate(samples: list[Any]) -> tuple[list[Any], list[Any]]:
    """Collates samples into a list of images and a list of targets, as sizes and numbers of boxes differ."""
    images, targets = zip(*samples, strict=True)
    return list(images), list(targets)


class _Detection(Data):
    """Base of the data sets below: checks boxes and changes images together with their boxes."""

    collate = staticmethod(detection_collate)
    formats = FORMATS

    def __init__(
        self,
        batch_size: int = 8,
        image_size: Sequence[int] | None = None,
        flip: bool = True,
        crop: bool = False,
        zoom_out: float = 1.0,
        colour: float = 0.0,
        channels: int = 3,
        value_range: Sequence[float] | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(batch_size, **loader)
        if image_size is not None and (len(image_size) != 2 or min(image_size) < 1):
            raise ValueError(f"image_size: expected [H, W] of at least 1 pixel each, got {list(image_size)}")
        if zoom_out < 1:
            raise ValueError(f"zoom_out: expected at least 1, got {zoom_out}")
        if not 0 <= colour <= 1:
            raise ValueError(f"colour: expected a share in [0, 1], got {colour}")
        self.reader = ChannelReader(channels, value_range)
        self.picture = self.reader.picture
        self.checks = Checks(self.on_error)
        self.class_names: list[str] = []
        changes = {
            recolour(channels, colour): colour > 0,
            _ZoomOut(channels, zoom_out): zoom_out > 1,
            v2.RandomIoUCrop(): crop,
            v2.RandomHorizontalFlip(): flip,
        }
        chosen = [change for change, is_chosen in changes.items() if is_chosen]
        resize = [v2.Resize(list(image_size))] if image_size is not None else []
        finish = [v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()]
        self.as_floats = v2.Compose(finish)
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
        self.facts["classes"] = self.class_names
        self.train_set = _Detections(train, classes, self.checks, self.reader)
        self.val_set = _Detections(val, classes, self.checks, self.reader, self.evaluated, with_crowds=True)
        self.predict_set = None
        if test is not None:
            self.predict_set = _Detections(test, classes, self.checks, self.reader, self.evaluated, with_crowds=True)
        is_known = test is not None and any(annotation.boxes is not None for annotation in test)
        self.test_set = self.predict_set if is_known else None
        counts = {"left_out_boxes": len(self.checks.left_out), "clipped_boxes": len(self.checks.cut)}
        self.counts = {name: count for name, count in counts.items() if count}
        if self.trainer is None or self.trainer.is_global_zero:
            self.checks.tell()

    def read(self, source: Any, resize: bool = True) -> Tensor:
        """Reads an image (C, H, W) in [0, 1] from a path or bytes; without resize, of the size of its file."""
        return self._prepared(self.reader.tensor(source), resize)

    def unlabelled(self, source: Any, resize: bool = True) -> tuple[Tensor, dict[str, Any]]:
        image = self.reader.tensor(source)
        return self._prepared(image, resize), {"file_size": tuple(image.shape[:0:-1])}

    def _prepared(self, image: Tensor, resize: bool) -> Tensor:
        return (self.evaluated if resize else self.as_floats)(tv_tensors.Image(image))

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
        options: batch_size; image_size, [H, W] in pixels to which images are resized; in training, flip, whether half
            of the images are mirrored; crop, whether parts are cut out (Liu et al. 2016); zoom_out, largest factor by
            which a grey canvas around the image is larger, 1 for none; colour, how much brightness, contrast and
            saturation vary, in [0, 1]; channels, 3 for RGB, 1 for grey images, or C, the number of channels in the
            files; value_range, least and largest value in the files, which become 0 and 1, by default those of 8 or 16
            bits; further options of Data, whose on_error also applies to broken boxes.

    Shapes:
        list of B images (C, H, W) in [0, 1], list of B dicts: boxes (N, 4) as left, top, right, bottom in pixels,
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
        if not train and self.given_names is None and "classes" not in self.facts:
            raise UserError(
                f"--data.train: {self.lists[0].as_posix()}: lists no images, so the classes are unknown; "
                "--data.class_names gives them"
            )
        labels = {box.label for annotation in train for box in annotation.boxes or [] if box.label is not None}
        known = self.given_names or self.facts.get("classes")
        self.class_names = sorted(labels) if known is None else list(known)
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
        options: batch_size; image_size, [H, W] in pixels to which images are resized; in training, flip, whether half
            of the images are mirrored; crop, whether parts are cut out (Liu et al. 2016); zoom_out, largest factor by
            which a grey canvas around the image is larger, 1 for none; colour, how much brightness, contrast and
            saturation vary, in [0, 1]; channels, 3 for RGB, 1 for grey images, or C, the number of channels in the
            files; value_range, least and largest value in the files, which become 0 and 1, by default those of 8 or 16
            bits; further options of Data, whose on_error also applies to broken boxes.

    Shapes:
        list of B images (C, H, W) in [0, 1], list of B dicts: boxes (N, 4) as left, top, right, bottom in pixels,
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
        if "classes" in self.facts:  # of a checkpoint
            ids = {name: category for category, name in known.items()}
            known = {ids.get(name, f"no category {k}"): name for k, name in enumerate(self.facts["classes"])}
        self.class_names = list(known.values())
        self.facts["category_ids"] = self.facts.get("category_ids") or list(known)
        train, val, *test = read
        self.hold({name: k for k, name in enumerate(self.class_names)}, train, val, test[0] if test else None)


def _without_empty(sample: tuple[Tensor, dict[str, Any]]) -> tuple[Tensor, dict[str, Any]]:
    """Drops boxes of which a crop left nothing. torchvision's version drops every box below a pixel."""
    image, target = sample
    height, width = target["boxes"].canvas_size
    least = LEAST_SHARE / 8 * torch.tensor([width, height])  # rounding or zooming out shall not drop what was read
    has_area = (target["boxes"][:, 2:] - target["boxes"][:, :2] >= least).all(dim=1)  # (N,)
    return image, {**target, "boxes": target["boxes"][has_area], "labels": target["labels"][has_area]}


class _ZoomOut:
    """Places images on a larger grey canvas (Liu et al. 2016), whether they are bytes or floats."""

    def __init__(self, channels: int, largest: float) -> None:
        fill = GREY if channels == 3 else [GREY[1]] * channels
        sides = (1, max(largest, 1))
        self.of_bytes = v2.RandomZoomOut(fill=fill, side_range=sides)
        self.of_floats = v2.RandomZoomOut(fill=[value / 255 for value in fill], side_range=sides)

    def __call__(self, sample: tuple[Tensor, dict[str, Any]]) -> Any:
        return (self.of_floats if sample[0].is_floating_point() else self.of_bytes)(sample)


class _Detections(Dataset):
    """Images (C, H, W) with their usable boxes."""

    def __init__(
        self,
        annotations: list[Annotation],
        classes: dict[Any, int],
        checks: Checks,
        reader: ChannelReader,
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
        self.reader = reader
        self.change = change

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, dict[str, Any]]:
        annotation = self.annotations[index]
        if annotation.failure:
            raise UserError(annotation.failure)
        image = self.reader.tensor(annotation.file, annotation.size)
        size = tuple(image.shape[:0:-1])  # width and height
        target: dict[str, Any] = {"image_id": annotation.image_id}
        if annotation.boxes is not None:
            if size != annotation.size:
                sizes = " × ".join(map(str, size)), " × ".join(map(str, annotation.size))
                raise UserError(f"{annotation.file.as_posix()}: is {sizes[0]} pixels, {sizes[1]} in its annotation")
            canvas: Any = size[::-1]
            boxes: Any = tv_tensors.BoundingBoxes(self.boxes[index], format="XYXY", canvas_size=canvas)  # type: ignore[call-overload]  # takes tensors
            target |= {"boxes": boxes, "labels": self.labels[index]}
            if self.crowds[index].any():  # detections inside a crowd count neither as hits nor as errors
                target["iscrowd"] = self.crowds[index]
        sample = tv_tensors.Image(image), target
        if self.change is None:
            return sample
        changed, target = self.change(sample)
        if changed.shape[-2:] != size[::-1]:
            target["file_size"] = size  # width and height, so that predictions can be given in pixels of the file
        return changed, target


def _names(file: Path) -> list[str]:
    """Names of images, one per line; lists of a single class append -1, 0 or 1."""
    return [re.sub(r"\s+(-1|0|1)$", "", line) for line in lines_of(file)]
