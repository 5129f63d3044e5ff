"""What every part of the runtime knows: a sample, and the error for an input that cannot be used."""

from dataclasses import dataclass
from typing import Any

import numpy as np


class InputError(ValueError):
    """An input that the model cannot take; its text is a sentence for whoever sent the input."""


@dataclass(frozen=True)
class Sample:
    """The inputs of one sample.

    Args:
        inputs: arrays by name, without the dimension B.
        size: height and width of an image's file, in whose pixels boxes are answered; None for other inputs.
        decoded: height and width of what was decoded, where that was less than the file.
    """

    inputs: dict[str, np.ndarray]
    size: tuple[int, int] | None = None
    decoded: tuple[int, int] | None = None


def shorten(value: Any, length: int = 60) -> str:
    """The beginning of a value as text, for messages."""
    return f"{value!r:.{length}}"
