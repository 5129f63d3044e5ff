"""From answers to JSON: masks become PNG files in base64."""

import base64
import io
import json
import math
from typing import Any

import numpy as np

from playbook.runs.colours import mask_image


def plain(value: Any) -> Any:
    """The same as JSON holds it; numbers that are not finite become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    array = np.asarray(value)  # of NumPy or torch
    if array.ndim == 2 and array.dtype.kind in "iu":
        return {"png": base64.b64encode(mask_png(array)).decode(), "height": array.shape[0], "width": array.shape[1]}
    return plain(array.tolist()) if array.dtype.kind in "biufUS" else str(value)


def mask_png(mask: np.ndarray) -> bytes:
    """Class numbers (H, W) as a PNG file."""
    file = io.BytesIO()
    mask_image(mask).save(file, "PNG")
    return file.getvalue()


def encode(content: Any) -> bytes:
    """JSON in UTF-8; half characters, which a model may generate, are replaced."""
    return json.dumps(plain(content), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
