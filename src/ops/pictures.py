"""Pictures of answers: images with captions, boxes and masks, as Pillow images."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from playbook import class_colour

SMALLEST = 256  # pixels; a picture of which both sides are shorter is enlarged, so that captions can be read
OPACITY = 0.5  # of a mask over its image


def as_image(image: Tensor) -> Image.Image:
    """Turns an image (C, H, W) into one of Pillow: bytes as they are, floats stretched from darkest to brightest.

    Raises:
        ValueError: it is no image, so that there is nothing to draw on.
    """
    if not isinstance(image, Tensor) or image.ndim != 3:
        kind = f"{tuple(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
        raise ValueError(f"expected an image (C, H, W), got {kind}")
    pixels = image.detach().cpu()[:3] if len(image) >= 3 else image.detach().cpu()[:1].expand(3, -1, -1)
    if pixels.dtype != torch.uint8:
        pixels = pixels.float()
        low, high = pixels.min(), pixels.max()
        pixels = ((pixels - low) / (high - low).clamp(min=1e-12) * 255).round().to(torch.uint8)
    return Image.fromarray(np.ascontiguousarray(pixels.permute(1, 2, 0).numpy()))  # (H, W, 3)


def enlargement(image: Image.Image) -> int:
    """How many times a small picture is enlarged."""
    return max(1, round(SMALLEST / max(image.size)))


def enlarged(image: Image.Image) -> Image.Image:
    """A small picture with every pixel as a square of pixels."""
    factor = enlargement(image)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def captioned(image: Image.Image, text: str) -> Image.Image:
    """The picture below a line of text."""
    font = _font(image, share=0.06)
    left, top, right, bottom = font.getbbox(text)
    margin = int(bottom - top) // 2 + 2
    height = int(bottom - top) + 2 * margin
    picture = Image.new("RGB", (max(image.width, int(right - left) + 2 * margin), image.height + height), "white")
    picture.paste(image, (0, height))
    ImageDraw.Draw(picture).text((margin, margin - top), text, fill="black", font=font)
    return picture


def with_boxes(image: Image.Image, boxes: Sequence[dict[str, Any]], numbers: dict[str, int]) -> Image.Image:
    """The picture with boxes, each with its class and score in the colour of the class.

    Args:
        image: to draw on.
        boxes: left, top, right and bottom in pixels of the image, class, and score if it is not a target.
        numbers: of the classes by name, which choose the colours.
    """
    factor = enlargement(image)
    picture = enlarged(image)
    draw, font = ImageDraw.Draw(picture), _font(picture, share=0.03)
    width = max(2, round(max(picture.size) / 300))
    for box in sorted(boxes, key=lambda box: box.get("score", 1.0)):  # the surest on top
        colour = class_colour(1 + numbers.get(box["class"], 0))
        corners = [factor * box[side] for side in ("left", "top", "right", "bottom")]
        draw.rectangle(corners, outline=colour, width=width)
        text = f"{box['class']} {box['score']:.2f}" if "score" in box else str(box["class"])
        place = draw.textbbox((corners[0], corners[1]), text, font=font)
        up = min(corners[1], place[3] - place[1] + 4)  # above the box, where there is room
        place = draw.textbbox((corners[0] + 2, corners[1] - up), text, font=font)
        draw.rectangle((place[0] - 2, place[1] - 1, place[2] + 2, place[3] + 1), fill=colour)
        ink = "black" if sum(colour) > 3 * 128 else "white"
        draw.text((corners[0] + 2, corners[1] - up), text, fill=ink, font=font)
    return picture


def with_mask(image: Image.Image, mask: Tensor, names: list[str]) -> Image.Image:
    """The picture under a mask (H, W) of class numbers in their colours, with the names of those that occur."""
    numbers = mask.cpu().numpy()
    occurring = np.unique(numbers)
    table = np.zeros((int(numbers.max(initial=0)) + 1, 3), dtype=np.float32)
    for number in occurring:
        table[number] = class_colour(int(number))
    if image.size != numbers.shape[::-1]:
        image = image.resize(numbers.shape[::-1])
    shares = np.where(numbers[..., None] > 0, OPACITY, OPACITY / 2)  # the first class is often the ground
    blended = (1 - shares) * np.asarray(image, dtype=np.float32) + shares * table[numbers]
    picture = enlarged(Image.fromarray(blended.round().astype(np.uint8)))
    draw, font = ImageDraw.Draw(picture), _font(picture, share=0.04)
    top = 2.0
    for number in occurring:
        name = str(names[number]) if number < len(names) else str(number)
        place = draw.textbbox((4, top), name, font=font)
        colour = class_colour(int(number))
        draw.rectangle((place[0] - 2, place[1] - 1, place[2] + 2, place[3] + 1), fill=colour)
        draw.text((4, top), name, fill="black" if sum(colour) > 3 * 128 else "white", font=font)
        top = place[3] + 3
    return picture


def _font(image: Image.Image, share: float) -> Any:
    return ImageFont.load_default(max(10.0, share * min(image.size)))
