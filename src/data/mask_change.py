"""Transforms an image and its mask alike: size, crop, mirroring; colours change only in the image."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import v2

Pixels = tuple[Tensor, Tensor]  # image (C, H, W) and mask (H, W)


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
