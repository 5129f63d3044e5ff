"""Transforms images together with their boxes: size, mirroring, crop, zooming out and colours."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import v2

from src.data.vision.annotations import LEAST_SHARE
from src.data.vision.recolour import recolour

GREY = [124, 116, 104]  # ImageNet's mean; that of green for images that are not RGB
Sample = tuple[Tensor, dict[str, Any]]  # image (C, H, W) and its target


class BoxTransforms:
    """The transforms of training and those of evaluation, which resize and convert to floats alone.

    Args:
        image_size: height and width of the result; None keeps the size of the image.
        flip: whether half of the training images are mirrored left to right.
        crop: whether training images are cropped at random (Liu et al. 2016).
        zoom_out: largest factor by which a grey canvas around a training image exceeds the image; 1 turns it off.
        colour: largest relative change of brightness, contrast and saturation in training; 0 for none.
        channels: channels of an image, C.

    Attributes:
        training: the random changes, then those of evaluation; drops boxes of which a crop left nothing.
        evaluation: resizes a sample or an image, and converts bytes to floats in [0, 1].
        as_floats: the same without the resizing.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self, image_size: Sequence[int] | None, flip: bool, crop: bool, zoom_out: float, colour: float, channels: int
    ) -> None:
        if image_size is not None and (len(image_size) != 2 or min(image_size) < 1):
            raise ValueError(f"image_size: expected [H, W] of at least 1 pixel each, got {list(image_size)}")
        if zoom_out < 1:
            raise ValueError(f"zoom_out: expected at least 1, got {zoom_out}")
        if not 0 <= colour <= 1:
            raise ValueError(f"colour: expected a share in [0, 1], got {colour}")
        self.image_size = None if image_size is None else list(image_size)
        changes = {
            recolour(channels, colour): colour > 0,
            _ZoomOut(channels, zoom_out): zoom_out > 1,
            v2.RandomIoUCrop(): crop,
            v2.RandomHorizontalFlip(): flip,
        }
        chosen = [change for change, is_chosen in changes.items() if is_chosen]
        resize = [v2.Resize(self.image_size)] if self.image_size is not None else []
        clean = [v2.ClampBoundingBoxes(), _without_empty]
        finish = [v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()]
        self.training = v2.Compose([*chosen, *resize, *clean, *finish])
        self.evaluation = v2.Compose([*resize, *finish])
        self.as_floats = v2.Compose(finish)


def _without_empty(sample: Sample) -> Sample:
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

    def __call__(self, sample: Sample) -> Any:
        return (self.of_floats if sample[0].is_floating_point() else self.of_bytes)(sample)
