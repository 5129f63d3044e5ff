"""Changes of a batch of images, each image with its own numbers; on any device, without a loop over images."""

import torch
from torch import Tensor
from torch.nn.functional import grid_sample


def flip(image: Tensor, chosen: Tensor) -> Tensor:
    """Mirrors the chosen (B,) of the images (B, C, H, W) left to right."""
    return torch.where(chosen[:, None, None, None], image.flip(-1), image)


def translate(image: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Moves images (B, C, H, W) by whole pixels, (B,) each; what comes in is the image reflected at its border."""
    rows = _reflected(image.shape[2], down)  # (B, H)
    columns = _reflected(image.shape[3], right)  # (B, W)
    pixels = (rows[:, :, None] * image.shape[3] + columns[:, None, :]).flatten(1)  # (B, H · W)
    flat = image.permute(0, 2, 3, 1).flatten(1, 2)  # (B, H · W, C)
    # half of the time of image[batch, :, rows, columns] on a CPU
    moved = flat.gather(1, pixels[:, :, None].expand(flat.shape))
    return moved.unflatten(1, image.shape[2:]).permute(0, 3, 1, 2)  # (B, C, H, W), channels last in memory


def resized_crop(image: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """Stretches a rectangle of each float image (B, C, H, W) to the whole, bilinearly.

    Args:
        image: to be cut, floating point.
        top: first row of the rectangle in pixels (B,), may be a fraction; so are left, height and width.
        left: first column.
        height: of the rectangle, above 0.
        width: of the rectangle, above 0.
    """
    y = _stretched(image.shape[2], top, height)  # (B, H)
    x = _stretched(image.shape[3], left, width)  # (B, W)
    sizes = y.shape[1], x.shape[1]
    grid = torch.stack([x[:, None, :].expand(-1, sizes[0], -1), y[:, :, None].expand(-1, -1, sizes[1])], dim=-1)
    return grid_sample(image, grid.to(image.dtype), align_corners=False)  # (B, C, H, W)


def cutout(image: Tensor, row: Tensor, column: Tensor, size: int) -> Tensor:
    """Zeroes a square around a centre (B,) in each image (B, C, H, W), less where it leaves the image.

    DeVries & Taylor 2017. On normalised images zero is the mean.
    """
    hidden = _near(image.shape[2], row, size)[:, :, None] & _near(image.shape[3], column, size)[:, None, :]  # (B, H, W)
    return image.clone().masked_fill_(hidden[:, None], 0)  # masked_fill would not keep channels last in memory


def _reflected(size: int, shift: Tensor) -> Tensor:
    place = torch.arange(size, device=shift.device) - shift[:, None]  # (B, size), up to size - 1 out of the image
    return size - 1 - (size - 1 - place.abs()).abs()


def _stretched(size: int, start: Tensor, length: Tensor) -> Tensor:
    """Where pixel centres come from, from -1 to 1 over the image; none from outside of the rectangle."""
    share = (torch.arange(size, device=start.device, dtype=start.dtype) + 0.5) / size  # (size,)
    place = share * length[:, None]  # (B, size), pixels from the start of the rectangle
    place = start[:, None] + place.clamp(min=0.5).minimum(length[:, None] - 0.5)
    return place * 2 / size - 1


def _near(size: int, centre: Tensor, width: int) -> Tensor:
    first = centre - width // 2
    place = torch.arange(size, device=centre.device)
    return (place >= first[:, None]) & (place < first[:, None] + width)  # (B, size)
