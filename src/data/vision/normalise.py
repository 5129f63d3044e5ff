"""Normalises images by the mean and standard deviation of each channel."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms.v2.functional import normalize, to_dtype, to_image

from playbook import UserError
from src.data.vision.channels import ChannelReader

MEANS = {1: [0.5], 3: [0.485, 0.456, 0.406]}  # by channels; of RGB, ImageNet's
DEVIATIONS = {1: [0.25], 3: [0.229, 0.224, 0.225]}
MOST_READ = 100  # training images that are read to compute missing statistics
LEAST_DEVIATION = 1 / 255  # keeps channels of a single value finite


class Normalise:
    """Subtracts the mean of each channel and divides by its standard deviation.

    Args:
        channels: number of channels C.
        mean: mean to subtract from each channel, for values in [0, 1]. Defaults to ImageNet's for 3 channels, to 0.5
            for 1, and to that of the training images for others.
        deviation: standard deviation to divide by. Defaults to ImageNet's for 3 channels, to 0.25 for 1, and to that of
            the training images for others.

    Raises:
        ValueError: there are not C values, or a deviation is not above 0.
    """

    def __init__(self, channels: int, mean: Sequence[float] | None, deviation: Sequence[float] | None) -> None:
        mean, deviation = mean or MEANS.get(channels), deviation or DEVIATIONS.get(channels)
        for name, values in {"mean": mean, "deviation": deviation}.items():
            if values is not None and len(values) != channels:
                raise ValueError(f"{name}: expected {channels} values, one a channel, got {list(values)}")
        if deviation is not None and min(deviation) <= 0:
            raise ValueError(f"deviation: expected values above 0, got {list(deviation)}")
        self.values = {"mean": mean and list(mean), "deviation": deviation and list(deviation)}

    @property
    def is_known(self) -> bool:
        return None not in self.values.values()

    def __call__(self, image: Tensor) -> Tensor:
        return normalize(image, self.values["mean"], self.values["deviation"])  # type: ignore[arg-type]  # known by now

    def take(self, facts: dict[str, Any]) -> None:
        """Takes missing statistics from the facts of a checkpoint."""
        self.values = {name: facts.get(name) if value is None else value for name, value in self.values.items()}

    def learn(self, files: Sequence[Path], reader: ChannelReader, on_error: str) -> None:
        """Computes missing statistics over at most 100 training images, spread evenly.

        Args:
            files: the training images.
            reader: reads them.
            on_error: skip leaves out those that cannot be read.

        Raises:
            UserError: an image cannot be read and `on_error` is stop, or none can.
        """
        if self.is_known:
            return
        means, squares = [], []
        for file in files[:: -(-len(files) // MOST_READ)]:
            try:
                image = to_dtype(to_image(reader(file)), torch.float32, scale=True).flatten(1)  # (C, H W)
            except (OSError, ValueError) as error:
                if on_error == "skip":  # the loader tells and counts them
                    continue
                text = str(error) if isinstance(error, UserError) else f"{file.as_posix()}: {_cause(error)}"
                raise UserError(f"--data.root: {text}") from error
            variance, mean = torch.var_mean(image.double(), dim=1, correction=0)
            means.append(mean)
            squares.append(variance + mean.square())
        if not means:
            raise UserError("--data.mean: no training image can be read to compute it")
        mean = torch.stack(means).mean(0)
        deviation = (torch.stack(squares).mean(0) - mean.square()).clamp(min=0).sqrt().clamp(min=LEAST_DEVIATION)
        self.take({"mean": mean.tolist(), "deviation": deviation.tolist()})


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or " ".join(str(error).split())
