"""Images with boxes, in the formats of Pascal VOC and COCO."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

from playbook import Data, UserError
from src.data.annotations import LEAST_SHARE, Annotation, Checks
from src.data.channels import ChannelReader
from src.data.coco import read_coco
from src.data.images import FORMATS, name_files, reading_of
from src.data.layouts import Layout, cut, find_coco, find_voc
from src.data.recolour import recolour
from src.data.voc import read_voc

GREY = [124, 116, 104]  # ImageNet's mean; that of green for images that are not RGB


def detection_collate(samples: list[Any]) -> tuple[list[Any], list[Any]]:
    """Collates samples into a list of images and a list of targets, as sizes and box counts differ."""
    images, targets = zip(*samples, strict=True)
    return list(images), list(targets)


class _Detection(Data):
    """Base of the data sets with boxes: checks boxes, and transforms images together with their boxes.

    Args:
        batch_size: samples per batch and process, B, at least 1.
        image_size: height and width in pixels to which images are resized, [H, W]. Defaults to the size in the file.
        flip: whether half of the training images are mirrored left to right.
        crop: whether training images are cropped at random (Liu et al. 2016).
        zoom_out: largest factor, at least 1, by which a grey canvas around a training image exceeds the image; 1 turns
            it off.
        colour: largest relative change of brightness, contrast and saturation in training, in [0, 1]; 0 for none.
        val_share: share of train used for validation if there are no files for it, chosen with a fixed seed, in (0, 1).
        test_share: share of train used for testing if there are no files for it, in [0, 1); 0 for no test.
        channels: channels of an image, C. Grey and RGB files are converted to 1 or 3 channels; any other number must be
            that of the files, such as 4 for RGBA or 5 for a TIFF of 5 bands or pages.
        value_range: values in the files that become 0 and 1. Defaults to 0 and 255 for files of 8 bits, 0 and 65535 for
            16 bits; required for floats.
        loader: further options of Data; on_error also applies to broken boxes and to files without a counterpart.
    """

    collate = staticmethod(detection_collate)
    formats = FORMATS
    root: Path

    def __init__(
        self,
        batch_size: int = 8,
        image_size: Sequence[int] | None = None,
        flip: bool = True,
        crop: bool = False,
        zoom_out: float = 1.0,
        colour: float = 0.0,
        val_share: float = 0.2,
        test_share: float = 0.0,
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
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        if not 0 <= test_share < 1 - val_share:
            raise ValueError(
                f"test_share: expected a share in [0, {1 - val_share:g}) with val_share {val_share:g}, got {test_share}"
            )
        self.shares = (val_share, test_share)
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
        self.image_size = None if image_size is None else list(image_size)
        resize = [v2.Resize(list(image_size))] if image_size is not None else []
        finish = [v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()]
        self.as_floats = v2.Compose(finish)
        self.evaluated = v2.Compose([*resize, *finish])
        # boxes of which a crop left nothing are dropped
        clean = [v2.ClampBoundingBoxes(), _without_empty]
        self.augment = v2.Compose([*chosen, *resize, *clean, *finish])

    def arrange(self, layout: Layout, splits: dict[str, list[Annotation]]) -> None:
        """Takes splits without files of their own from train, prints the layout and sets the data sets.

        Args:
            layout: the recognised layout.
            splits: annotations of train and, if they have files of their own, val and test.
        """
        for what, files in layout.unmatched.items():
            if files and self.on_error == "stop":
                raise UserError(f"--data.root: {name_files(what, files)}; --data.on_error skip leaves them out")
        parts = cut(splits, *self.shares)
        if self.trainer is None or self.trainer.is_global_zero:
            counts = [
                f"{len(part)} {split}{'' if split in splits else ' (from train)'}" for split, part in parts.items()
            ]
            print(f"data: {layout.name}, {', '.join(counts)} images in {self.root.as_posix()}", file=sys.stderr)
        for what, files in layout.unmatched.items():
            if files:
                self._left_out("files", len(files), name_files(what, files))
        self.hold({name: k for k, name in enumerate(self.class_names)}, parts["train"], parts["val"], parts.get("test"))

    def hold(
        self, classes: dict[Any, int], train: list[Annotation], val: list[Annotation], test: list[Annotation] | None
    ) -> None:
        """Sets the three data sets, and reports once what was skipped.

        Args:
            classes: number of every class by its name.
            train: annotations to train with.
            val: annotations to validate with.
            test: annotations to test with, or only to predict with if their boxes are not known; or None.
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
        self.counts |= {name: count for name, count in counts.items() if count}
        if self.trainer is None or self.trainer.is_global_zero:
            self.checks.tell()

    def read(self, source: Any, resize: bool = True) -> Tensor:
        """Reads an image (C, H, W) in [0, 1] from a path or bytes; without resize, in the size of its file."""
        return self._prepared(self.reader.tensor(source), resize)

    def unlabelled(self, source: Any, resize: bool = True) -> tuple[Tensor, dict[str, Any]]:
        image = self.reader.tensor(source)
        return self._prepared(image, resize), {"file_size": tuple(image.shape[:0:-1])}

    def preprocessing(self) -> dict[str, Any] | None:
        channels = self.reader.channels
        if channels not in (1, 3) or self.reader.value_range is not None:
            return None  # such files are read by more than Pillow
        steps: list[dict[str, Any]] = [] if self.image_size is None else [{"resize": self.image_size}]
        return reading_of(channels, [*steps, {"multiply": 1 / 255}], bits=16)

    def _prepared(self, image: Tensor, resize: bool) -> Tensor:
        return (self.evaluated if resize else self.as_floats)(tv_tensors.Image(image))


class VOCDetection(_Detection):
    """Boxes in the format of Pascal VOC (Everingham et al. 2010): an XML file per image.

    These layouts of root are recognised: VOCdevkit/VOC2007 or its content, as published; JPEGImages and Annotations, or
    images and annotations; images beside XML files, all in one folder or in train, valid and test, as LabelImg, CVAT
    and Roboflow write them. Lists in ImageSets/Main define the splits.

    Corners in the files count pixels from 1 and include the last one; left and top are moved by 1, as in Detectron2.
    Boxes whose corners coincide have no area. Objects marked as difficult count like all others.

    Args:
        root: folder of the data set; the one that contains VOCdevkit, if there is one.
        year: year in the name of the folder in VOCdevkit, as in VOC2007.
        train: list in ImageSets/Main of the images to train with, such as train or trainval. Defaults to train, or to
            trainval if there is neither train nor val.
        val: list of the images to validate with. Defaults to val; if that is missing, they are taken from train.
        test: list of the images to test with. Defaults to test. If the list is missing, there is no test unless
            test_share is set; images without boxes are only predicted.
        class_names: names of the classes 0 to K - 1. Defaults to those of the training set in alphabetical order.
        options: further options of all data sets with boxes, and of Data.

    Shapes:
        list of B images (C, H, W) in [0, 1], list of B dicts: boxes (N, 4) as left, top, right, bottom in pixels,
        labels (N,) and image_id; image_id alone if boxes are not known.

    Raises:
        ValueError: a value is out of range.
        UserError: the layout is unknown, a list is missing or, with on_error stop, a box or a file cannot be used or
            lacks its counterpart.
    """

    def __init__(
        self,
        root: str = "data",
        year: int = 2007,
        train: str | None = None,
        val: str | None = None,
        test: str | None = None,
        class_names: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.root, self.year = Path(root), year
        self.lists = {"train": train, "val": val, "test": test}
        self.given_names = different(class_names)
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if self.class_names:  # read already: Lightning asks again for every stage
            return
        layout = find_voc(self.root, self.year, self.lists)
        splits = {
            split: read_voc(pairs, self.checks, may_lack_boxes=split == "test")
            for split, pairs in layout.splits.items()
        }
        if not splits["train"] and self.given_names is None and "classes" not in self.facts:
            raise UserError(
                f"--data.root: {self.root.as_posix()}: {layout.name}: train has no images, so the classes are unknown; "
                "set --data.class_names"
            )
        labels = {box.label for image in splits["train"] for box in image.boxes or [] if box.label is not None}
        known = self.given_names or self.facts.get("classes")
        self.class_names = sorted(labels) if known is None else list(known)
        self.arrange(layout, splits)


class COCODetection(_Detection):
    """Boxes in the format of COCO (Lin et al. 2014): a JSON of images, categories and annotations per split.

    Files that the options do not name are searched for in these layouts: annotations/instances_train2017.json and
    train2017, as published; train/_annotations.coco.json beside the images, as Roboflow writes it; JSONs in annotations
    or in root that are named after train, val and test; or a single JSON, such as CVAT's
    annotations/instances_default.json or Label Studio's result.json, from which validation is taken. Folders of images
    are found by their content.

    Classes are the training set's categories in the order of their ids; the other splits are matched by name.
    Training skips crowds and keeps images without boxes.

    Args:
        root: folder to which the other paths are relative.
        train_annotations: JSON of the images to train with. By default searched for in root.
        train_images: folder of these images. By default searched for in root.
        val_annotations: JSON of the images to validate with. By default searched for in root; if there is none,
            validation images are taken from train.
        val_images: folder of these images. By default searched for in root.
        test_annotations: JSON of the images to test with. By default searched for in root; if there is none, there is
            no test unless test_share is set. Images without boxes are only predicted.
        test_images: folder of these images. By default searched for in root.
        options: further options of all data sets with boxes, and of Data.

    Shapes:
        list of B images (C, H, W) in [0, 1], list of B dicts: boxes (N, 4) as left, top, right, bottom in pixels,
        labels (N,) and image_id of the JSON; image_id alone if boxes are not known.

    Raises:
        ValueError: a value is out of range.
        UserError: the layout is unknown, a file is not in COCO's format or repeats an id or, with on_error stop, a box
            cannot be used.
    """

    def __init__(
        self,
        root: str = "data",
        train_annotations: str | None = None,
        train_images: str | None = None,
        val_annotations: str | None = None,
        val_images: str | None = None,
        test_annotations: str | None = None,
        test_images: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.root = Path(root)
        self.files: dict[str, tuple[str | None, str | None]] = {
            "train": (train_annotations, train_images),
            "val": (val_annotations, val_images),
            "test": (test_annotations, test_images),
        }
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if self.class_names:  # read already: Lightning asks again for every stage
            return
        layout = find_coco(self.root, self.files)
        val = "val" if "val" in layout.splits else "train"
        needed = {"fit": ("train", val), "validate": (val,)}.get(stage, ())  # predict takes files without
        known: dict[Any, str] | None = None
        splits = {}
        for split, (file, folders) in layout.splits.items():
            names, splits[split] = read_coco(file, folders, self.checks, known, needs_boxes=split in needed)
            known = dict(sorted(names.items())) if known is None else known  # by category id
        assert known is not None
        if "classes" in self.facts:  # of a checkpoint
            ids = {name: category for category, name in known.items()}
            known = {ids.get(name, f"no category {k}"): name for k, name in enumerate(self.facts["classes"])}
        self.class_names = list(known.values())
        self.facts["category_ids"] = self.facts.get("category_ids") or list(known)
        self.arrange(layout, splits)


def different(class_names: Sequence[str] | None) -> Sequence[str] | None:
    """The names of classes, checked to be distinct.

    Raises:
        ValueError: two of them are the same.
    """
    if class_names is not None and len(set(class_names)) != len(class_names):
        raise ValueError(f"class_names: expected different names, got {list(class_names)}")
    return class_names


def _without_empty(sample: tuple[Tensor, dict[str, Any]]) -> tuple[Tensor, dict[str, Any]]:
    """Drops boxes of which nothing is left after a crop. torchvision's version drops every box below a pixel."""
    image, target = sample
    height, width = target["boxes"].canvas_size
    least = LEAST_SHARE / 8 * torch.tensor([width, height])  # rounding or zooming out shall not drop what was read
    has_area = (target["boxes"][:, 2:] - target["boxes"][:, :2] >= least).all(dim=1)  # (N,)
    return image, {**target, "boxes": target["boxes"][has_area], "labels": target["labels"][has_area]}


class _ZoomOut:
    """Puts images of bytes or floats on a larger grey canvas (Liu et al. 2016)."""

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
