"""Images with boxes, in the format of YOLO."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playbook import UserError
from src.data.detection import _Detection, different
from src.data.layouts import find_yolo
from src.data.yolo import read_settings, read_yolo


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
        options: further options of all data sets with boxes, and of Data.

    Shapes:
        list of B images (C, H, W) in [0, 1], list of B dicts: boxes (N, 4) as left, top, right, bottom in pixels,
        labels (N,) and image_id; image_id alone if boxes are not known.

    Raises:
        ValueError: a value is out of range.
        UserError: the layout is unknown, the YAML cannot be used or, with on_error stop, a line or an image cannot.
    """

    def __init__(self, root: str = "data", class_names: Sequence[str] | None = None, **options: Any) -> None:
        super().__init__(**options)
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
            split: read_yolo(pairs, names, self.checks, split == "test", settings.has_keypoints)
            for split, pairs in layout.splits.items()
        }
        self.class_names = list(self.facts.get("classes") or names.values())  # of a checkpoint, matched by name
        self.arrange(layout, splits)
