"""Images with boxes, in the format of YOLO."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from playbook import UserError
from src.data.vision.box_transforms import BoxTransforms
from src.data.vision.channels import ChannelReader
from src.data.vision.detection import _Detection, different
from src.data.vision.layouts import find_yolo
from src.data.vision.yolo import read_settings, read_yolo


class YOLODetection(_Detection):
    """Boxes in the format of Ultralytics' YOLO: data.yaml, and a text file per image, labels/… for images/….

    The YAML contains `names`, a list or names by number, and for train, val and test a folder of images, a list of
    images in a text file, or several of these, relative to `path` or to the YAML. Without a YAML, root contains
    images/train and labels/train, train/images and train/labels, only images and labels, or images beside their text
    files, and names are in classes.txt, as Label Studio and LabelImg write it, or in CVAT's obj.names.

    A line of a text file is a class and the box's centre x, centre y, width and height, as shares of the image's width
    and height; polygons become the boxes around them. An image without a text file has no objects.

    Args:
        root: folder of the data set, or its YAML.
        class_names: names of the classes 0 to K - 1 in the text files. Defaults to those in the YAML, classes.txt
            or obj.names.
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
            as it is `stored`, which is then not turned. Defaults to upright, as
            labelling tools draw them.
        check_files: whether to load every sample once before training, to count those that cannot be loaded.

    Shapes:
        list of B images (C, H, W) in [0, 1], list of B dicts: boxes (N, 4) as left, top, right, bottom in pixels,
        labels (N,) and image_id; image_id alone if boxes are not known.

    Raises:
        ValueError: a value is out of range.
        UserError: the layout is unknown, the YAML cannot be used or, with on_error stop, a line or an image cannot.
    """

    has_sizes = False

    def __init__(
        self,
        root: str = "data",
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
        self.root = Path(root)
        self.given_names = different(class_names)
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if self.class_names:  # read already: Lightning asks again for every stage
            return
        settings = read_settings(self.root)
        layout = find_yolo(self.root, settings)
        names = settings.names if self.given_names is None else dict(enumerate(self.given_names))
        if not names:
            file = settings.file.as_posix()
            raise UserError(f"--data.class_names: expected names of the classes, as there are none in {file}")
        splits = {
            split: read_yolo(
                pairs,
                names,
                self.checks,
                may_lack_boxes=split == "test",
                has_keypoints=settings.has_keypoints,
                as_stored=self.boxes_refer_to == "stored",
            )
            for split, pairs in layout.splits.items()
        }
        self.class_names = list(self.facts.get("classes") or names.values())  # of a checkpoint, matched by name
        self.arrange(layout, splits)
