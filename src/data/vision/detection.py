"""Images with boxes, in the formats of Pascal VOC and COCO."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision import tv_tensors

from playbook import Data, UserError
from src.data.vision.annotations import Annotation, Checks
from src.data.vision.box_transforms import BoxTransforms
from src.data.vision.channels import ChannelReader
from src.data.vision.coco import groups_without_boxes, read_coco
from src.data.vision.images import FORMATS, Annotated, first_of, missing_files, name_files, reading_of
from src.data.vision.layouts import Layout, cut, find_coco, find_voc
from src.data.vision.orientation import Form, check_form, describe_turned, settle_forms
from src.data.vision.voc import read_voc

# suffixes of what tools write beside images
BESIDE_IMAGES = (
    *("", ".cache", ".cfg", ".csv", ".data", ".html", ".json", ".md", ".names", ".py", ".sh", ".txt", ".xml"),
    *(".yaml", ".yml", ".zip"),
)


def detection_collate(samples: list[Any]) -> tuple[list[Any], list[Any]]:
    """Collates samples into a list of images and a list of targets, as sizes and box counts differ."""
    images, targets = zip(*samples, strict=True)
    return list(images), list(targets)


class _Detection(Data):
    """Base of the data sets with boxes: checks boxes, and transforms images together with their boxes.

    Args:
        reader: reads the images.
        transforms: changes images and boxes in training and in evaluation.
        val_share: share of train used for validation if there are no files for it, in (0, 1).
        test_share: share of train used for testing if there are no files for it, in [0, 1); 0 for no test.
        batch_size: samples per batch and process, B.
        num_workers: number of loader processes.
        on_error: what happens to broken boxes, to files without a counterpart and to samples that cannot be loaded.
        timeout_s: seconds without a batch after which a worker counts as hanging.
        boxes_refer_to: form of turned photos that boxes refer to; None to go by their annotated width and height.
        check_files: whether to load every sample once before training.
    """

    collate = staticmethod(detection_collate)
    formats = FORMATS
    has_sizes = True  # whether annotations hold the width and height of their images
    root: Path

    def __init__(
        self,
        reader: ChannelReader,
        transforms: BoxTransforms,
        val_share: float,
        test_share: float,
        batch_size: int,
        num_workers: int,
        on_error: Literal["stop", "skip"],
        timeout_s: float,
        boxes_refer_to: Form | None,
        check_files: bool,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s, check_files=check_files)
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        if not 0 <= test_share < 1 - val_share:
            raise ValueError(
                f"test_share: expected a share in [0, {1 - val_share:g}) with val_share {val_share:g}, got {test_share}"
            )
        self.shares = (val_share, test_share)
        self.boxes_refer_to: Form | None = check_form(boxes_refer_to)
        self.reader = reader
        self.picture = reader.picture
        self.checks = Checks(on_error)
        self.class_names: list[str] = []
        self.transforms = transforms
        self.evaluated = transforms.evaluation
        self.augment = transforms.training

    def arrange(self, layout: Layout, splits: dict[str, list[Annotation]]) -> None:
        """Takes splits without files of their own from train, prints the layout and sets the data sets.

        Args:
            layout: the recognised layout.
            splits: annotations of train and, if they have files of their own, val and test.
        """
        for what, files in layout.unmatched.items():
            if files and self.on_error == "stop":
                raise UserError(f"--data.root: {name_files(what, files)}; --data.on_error skip leaves them out")
        parts = self._existing(cut(splits, *self.shares))
        turned = ""
        if self.checks.turned:  # of YOLO, whose annotations hold no size
            form = self.boxes_refer_to or "upright"
            turned = describe_turned(len(self.checks.turned), self.checks.turned[0], form)
        elif self.has_sizes:
            parts, turned = settle_forms(parts, self.boxes_refer_to)
        if self.speaks:
            counts = [
                f"{len(part)} {split}{'' if split in splits else ' (from train)'}" for split, part in parts.items()
            ]
            print(f"data: {layout.name}, {', '.join(counts)} images in {self.root.as_posix()}", file=sys.stderr)
            print(f"data: {turned}\n" if turned else "", end="", file=sys.stderr)
        if layout.lists_folders:
            self.leave_out_others([self.root if self.root.is_dir() else self.root.parent], BESIDE_IMAGES)
        for what, files in layout.unmatched.items():
            if files:
                self._left_out("files", len(files), name_files(what, files))
        self.hold({name: k for k, name in enumerate(self.class_names)}, parts["train"], parts["val"], parts.get("test"))

    def _existing(self, splits: dict[str, list[Annotation]]) -> dict[str, list[Annotation]]:
        """Ends the run because of images that do not exist; with on_error skip, leaves them out and counts them."""
        usable = [annotation.file for part in splits.values() for annotation in part if not annotation.failure]
        missing = missing_files(usable)
        if not missing:
            return splits
        text = f"{len(missing)} of {len(usable)} images do not exist: {first_of(missing)}"
        if self.on_error == "stop":
            raise UserError(f"--data.root: {text}; --data.on_error skip leaves them out")
        self._left_out("files", len(missing), text)
        absent = set(missing)
        return {split: [image for image in part if image.file not in absent] for split, part in splits.items()}

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
        self.reader.take(self.facts)
        self.facts |= {"classes": self.class_names, "in_channels": self.reader.channels}
        self.train_set = _Detections(train, classes, self.checks, self.reader)
        self.val_set = _Detections(val, classes, self.checks, self.reader, self.evaluated, with_crowds=True)
        self.predict_set = None
        if test is not None:
            self.predict_set = _Detections(test, classes, self.checks, self.reader, self.evaluated, with_crowds=True)
        is_known = test is not None and any(annotation.boxes is not None for annotation in test)
        self.test_set = self.predict_set if is_known else None
        counts = {
            "left_out_boxes": len(self.checks.left_out),
            "clipped_boxes": len(self.checks.cut),
            "repeated_boxes": self.checks.repeated.total(),
        }
        self.counts |= {name: count for name, count in counts.items() if count}
        if self.speaks:
            self.checks.tell()
        parts = {"train": train, "val": val, "test": test or []}
        self.tell_copies({name: [annotation.file for annotation in part] for name, part in parts.items()})
        self.check_loading()

    def read(self, source: Any, resize: bool = True) -> Tensor:
        """Reads an image (C, H, W) in [0, 1] from a path or bytes; without resize, in the size of its file."""
        self.reader.take(self.facts)
        return self._prepared(self.reader.tensor(source), resize)

    def unlabelled(self, source: Any, resize: bool = True) -> tuple[Tensor, dict[str, Any]]:
        self.reader.take(self.facts)
        image = self.reader.tensor(source)
        return self._prepared(image, resize), {"file_size": tuple(image.shape[:0:-1])}

    def preprocessing(self) -> dict[str, Any] | None:
        channels = self.reader.channels
        if channels not in (1, 3) or self.reader.value_range is not None:
            return None  # such files are read by more than Pillow
        image_size = self.transforms.image_size
        steps: list[dict[str, Any]] = [] if image_size is None else [{"resize": image_size}]
        self.reader.take(self.facts)
        return reading_of(channels, [*steps, {"multiply": 1 / 255}], bits=16, background=self.reader.background)

    def _prepared(self, image: Tensor, resize: bool) -> Tensor:
        return (self.evaluated if resize else self.transforms.as_floats)(tv_tensors.Image(image))


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
        num_workers: number of loader processes; 0 loads in the main process.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json). Also applies to broken
            boxes and to files without a counterpart.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        boxes_refer_to: form of photos with an EXIF orientation that boxes refer to: the `upright` image, or the image
            as it is `stored`, which is then not turned. Defaults to the one of the
            annotated width and height, and to upright if these do not tell.
        check_files: whether to load every sample once before training, to count those that cannot be loaded.

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
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        boxes_refer_to: Literal["upright", "stored"] | None = None,
        check_files: bool = False,
    ) -> None:
        reader = ChannelReader(channels, value_range)
        transforms = BoxTransforms(image_size, flip, crop, zoom_out, colour, channels)
        super().__init__(
            reader,
            transforms,
            val_share,
            test_share,
            batch_size,
            num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
            boxes_refer_to=boxes_refer_to,
            check_files=check_files,
        )
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

    Classes are the training set's categories in the order of their ids, without those that only group others and have
    no boxes; the other splits are matched by name.
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
        num_workers: number of loader processes; 0 loads in the main process.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json). The same holds for
            broken boxes, and for files without a counterpart.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        boxes_refer_to: form of photos with an EXIF orientation that boxes refer to: the `upright` image, or the image
            as it is `stored`, which is then not turned. Defaults to the one of the
            annotated width and height, and to upright if these do not tell.
        check_files: whether to load every sample once before training, to count those that cannot be loaded.

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
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        boxes_refer_to: Literal["upright", "stored"] | None = None,
        check_files: bool = False,
    ) -> None:
        reader = ChannelReader(channels, value_range)
        transforms = BoxTransforms(image_size, flip, crop, zoom_out, colour, channels)
        super().__init__(
            reader,
            transforms,
            val_share,
            test_share,
            batch_size,
            num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
            boxes_refer_to=boxes_refer_to,
            check_files=check_files,
        )
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
        splits, categories = {}, {}
        for split, (file, folders) in layout.splits.items():
            found = read_coco(file, folders, self.checks, known, needs_boxes=split in needed)
            categories[split], splits[split] = found
            known = dict(sorted(categories[split].names.items())) if known is None else known  # by category id
        assert known is not None
        if "classes" in self.facts:  # of a checkpoint
            ids = {name: category for category, name in known.items()}
            known = {ids.get(name, f"no category {k}"): name for k, name in enumerate(self.facts["classes"])}
        else:
            for category, text in groups_without_boxes(categories).items():
                self._left_out("categories", 1, text)
                del known[category]
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
            boxes = [box for box in checks.without_repeated(annotation) if with_crowds or not box.is_crowd]
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
        image = self.reader.tensor(annotation.file, Annotated(annotation.size, annotation.as_stored))
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
