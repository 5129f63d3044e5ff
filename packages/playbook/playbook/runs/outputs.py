"""What `predict_step` returns, as one dict of plain values for each sample."""

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

MOST_SHOWN = 4  # values of a row that is printed


def rows_of(outputs: Any) -> list[dict[str, Any]]:
    """Splits a batch of outputs of any kind into a dict a sample."""
    if outputs is None:
        return []
    if hasattr(outputs, "_asdict"):
        outputs = outputs._asdict()
    if isinstance(outputs, list) and outputs and all(isinstance(output, dict) for output in outputs):
        return [{str(name): plain(value) for name, value in output.items()} for output in outputs]
    if isinstance(outputs, tuple):
        outputs = {f"output_{i}": value for i, value in enumerate(outputs)}
    if not isinstance(outputs, dict):
        outputs = {"prediction": plain(outputs) if isinstance(outputs, Tensor) and outputs.ndim > 2 else outputs}
    outputs = {k: torch.as_tensor(v) if isinstance(v, np.ndarray) else v for k, v in outputs.items()}
    lengths = {len(v) for v in outputs.values() if isinstance(v, list) or (isinstance(v, Tensor) and v.ndim > 0)}
    if len(lengths) != 1:  # no common batch dimension: the whole batch is one row
        return [{name: plain(value) for name, value in outputs.items()}]
    rows: list[dict[str, Any]] = [{} for _ in range(lengths.pop())]
    for name, value in outputs.items():
        for column_name, column in _columns(name, value):
            for row, cell in zip(rows, column if isinstance(column, list) else [column] * len(rows), strict=True):
                row[column_name] = cell
    return rows


def _columns(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Tensor) and value.ndim == 2:
        return [(f"{name}_{k}", column) for k, column in enumerate(plain(value.T))]
    if isinstance(value, Tensor) and value.ndim == 3 and not value.is_floating_point():
        return [(name, list(value))]  # masks (B, H, W)
    return [(name, plain(value))]


def plain(value: Any) -> Any:
    """The same as text, numbers, lists and dicts."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Tensor):
        return value.float().tolist() if value.dtype in (torch.bfloat16, torch.float16) else value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def line_of(row: dict[str, Any]) -> str:
    """One answer for the terminal: its name, then class and probability, a text, or how many boxes of which class.

    Of outputs that are none of these, the first few values.
    """
    parts = [f"{row['id']} "]
    if "class" in row:
        parts += [str(row["class"]), f"{row['probability']:.3f}"]
    if isinstance(row.get("text"), str):
        parts += [row["text"]]
    for value in row.values():
        if isinstance(value, list):
            counts = Counter(entry.get("class", "rows") for entry in value if isinstance(entry, dict))
            parts += [", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing"]
        elif isinstance(value, dict) and all(isinstance(share, float) for share in value.values()):
            parts += [", ".join(f"{name} {share:.0%}" for name, share in value.items() if share)]
    if len(parts) == 1:
        parts += [_values_of(row)]
    return " ".join(parts)


def _values_of(row: dict[str, Any]) -> str:
    cells = [(name, value) for name, value in row.items() if name != "id" and not isinstance(value, list | dict)]
    shown = [f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in cells]
    return ", ".join(shown[:MOST_SHOWN]) + (", …" if len(shown) > MOST_SHOWN else "")
