"""Transforms an image and its mask alike: size, crop, mirroring; colours change only in the image."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import v2

from src.data.vision.normalise import Normalise
from src.data.vision.recolour import recolour

Pixels = tuple[Tensor, Tensor]  # image (C, H, W) and mask (H, W)


class MaskTransforms:
    """The transforms of training and those of evaluation, which resize and normalise alone.

    Args:
        image_size: height and width of the result.
        flip: whether half of the training samples are mirrored left to right.
        crop: smallest share of the area that a random crop of a training image covers; 1 turns it off.
        colour: largest change of brightness, contrast and saturation of training images; 0 turns it off.
        channels: channels of an image, C.
        mean: mean to subtract from each channel, as in `Normalise`.
        deviation: standard deviation to divide each channel by, as in `Normalise`.

    Attributes:
        training: changes a training sample at random.
        evaluation: prepares any other sample.
        normalise: normalises images in both.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self,
        image_size: Sequence[int],
        flip: bool,
        crop: float,
        colour: float,
        channels: int,
        mean: Sequence[float] | None,
        deviation: Sequence[float] | None,
    ) -> None:
        if len(image_size) != 2 or min(image_size) < 1:
            raise ValueError(f"image_size: expected [H, W] of at least 1 pixel each, got {list(image_size)}")
        if not 0 < crop <= 1:
            raise ValueError(f"crop: expected a share in (0, 1], got {crop}")
        if not 0 <= colour <= 1:
            raise ValueError(f"colour: expected a share in [0, 1], got {colour}")
        self.normalise = Normalise(channels, mean, deviation)
        normalise = v2.Compose([v2.ToDtype(torch.float32, scale=True), self.normalise])
        part = v2.RandomResizedCrop(list(image_size), scale=(crop, 1)) if crop < 1 else None
        change_of_colour = recolour(channels, colour) if colour else None
        self.training = PairChange(image_size, normalise, part, change_of_colour, flip)
        self.evaluation = PairChange(image_size, normalise)


class PairChange:
    """Resizes image and mask to the net's size; in training, also crops, recolours and mirrors them at random.

    Args:
        image_size: height and width of the result.
        normalise: turns an image of bytes, or of floats in [0, 1], into normalised floats.
        part: torchvision's RandomResizedCrop; None keeps the whole image.
        recolour: transform of the image's colours, or None.
        flip: whether half of the samples are mirrored.
    """

    def __init__(
        self, image_size: Sequence[int], normalise: Any, part: Any = None, recolour: Any = None, flip: bool = False
    ) -> None:
        self.image_size = list(image_size)
        self.normalise = normalise
        self.part = part
        self.recolour = recolour
        self.flip = flip

    def __call__(self, sample: Pixels) -> Pixels:
        image, mask = sample  # (C, H, W), (H, W)
        top, left, (height, width) = 0, 0, mask.shape
        if self.part is not None:
            place = self.part.make_params([image])
            top, left, height, width = (place[key] for key in ("top", "left", "height", "width"))
        image = v2.functional.resized_crop(image, top, left, height, width, self.image_size, antialias=True)
        rows, columns = (  # the pixel at each centre; torchvision's nearest takes the one above and to the left
            (start + (torch.arange(size) + 0.5) * length / size).long()
            for start, length, size in zip((top, left), (height, width), self.image_size, strict=True)
        )
        mask = mask[rows[:, None], columns]
        image = self.normalise(image if self.recolour is None else self.recolour(image))
        return (image.flip(-1), mask.flip(-1)) if self.flip and torch.rand(()) < 0.5 else (image, mask)
