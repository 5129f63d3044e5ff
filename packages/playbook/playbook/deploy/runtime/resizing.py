"""Bilinear interpolation of images with antialiasing, as torch computes it, in NumPy."""

import numpy as np

MOST_BITS = 22  # of a weight as an integer; torch takes as many as keep it below 2¹⁵


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resizes bytes or floats (C, H, W); bytes bit by bit as torch does on x86 with AVX2 and on ARM.

    Args:
        image: uint8 or float32.
        size: height and width.
    """
    height, width = size
    if image.shape[1:] == (height, width):
        return image
    if image.shape[2] != width:
        image = _along_rows(image, width)  # (C, H, W')
    if image.shape[1] != height:
        image = _along_rows(image.swapaxes(1, 2), height).swapaxes(1, 2)  # (C, H', W')
    return np.ascontiguousarray(image)


def _along_rows(image: np.ndarray, length: int) -> np.ndarray:
    """Resizes the last axis: (C, H, W) → (C, H, length)."""
    # torch computes the weights of floats in single precision
    kind = np.float64 if image.dtype == np.uint8 else np.float32
    first, weights = _weights(image.shape[2], length, kind)  # (length,), (length, taps)
    if image.dtype == np.uint8:
        largest = weights.max()
        bits = next(b for b in range(MOST_BITS + 1) if b == MOST_BITS or int(0.5 + largest * 2 ** (b + 1)) >= 2**15)
        factors = np.floor(0.5 + weights * 2.0**bits).astype(np.int32)
        return (_sums(image, first, factors, 1 << (bits - 1)) >> bits).clip(0, 255).astype(np.uint8)
    return _sums(image, first, weights, 0)


def _sums(image: np.ndarray, first: np.ndarray, factors: np.ndarray, start: int) -> np.ndarray:
    """Weighted sums of pixels along the last axis; a tap at a time, as all together would not fit into memory."""
    columns = np.ascontiguousarray(image.transpose(2, 0, 1))  # (W, C, H): picked as wholes, 2 to 3 times as fast
    last = len(columns) - 1
    total = np.full((len(first), *columns.shape[1:]), start, dtype=factors.dtype)  # (length, C, H)
    product = np.empty_like(total)
    for tap in range(factors.shape[1]):
        picked = columns[np.minimum(first + tap, last)]
        total += np.multiply(picked, factors[:, tap, None, None], out=product, dtype=factors.dtype)
    return total.transpose(1, 2, 0)


def _weights(old: int, new: int, kind: type[np.floating]) -> tuple[np.ndarray, np.ndarray]:
    """First pixel of each new one, (new,), and the weights of the pixels from there on, (new, taps)."""
    scale = kind(old) / kind(new)
    support = max(scale, kind(1))
    centre = scale * (np.arange(new) + 0.5).astype(kind)
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    count = np.minimum((centre + support + 0.5).astype(np.int64), old) - first
    taps = np.arange(int(count.max()))
    distance = np.abs((taps + first[:, None]).astype(kind) - centre[:, None] + kind(0.5)) * (kind(1) / support)
    weights = np.where(taps < count[:, None], np.maximum(1 - distance, 0), kind(0))  # (new, taps)
    return first, weights / weights.sum(axis=1, keepdims=True)
