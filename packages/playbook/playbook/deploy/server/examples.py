"""The example of a model as the body of a request: the one in its artefact, or a row of typical values."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from playbook.deploy.server.answers import encode
from playbook.deploy.table_rows import typical_row

FILES = {".png": "image/png", ".wav": "audio/wav"}  # that a request has as they are; all others become JSON
MOST_BYTES = 2**20  # of an example, which stays in memory
MOST_NUMBERS = 2**16  # of an array in JSON


class Example(NamedTuple):
    """The body of a request.

    Args:
        content: of the body.
        media_type: its Content-Type.
        is_sample: whether it is a sample of the validation set, as the export kept it; else it is made up.
    """

    content: bytes
    media_type: str
    is_sample: bool


def example_of(manifest: Mapping[str, Any], folder: Path | None) -> Example | None:
    """The example of a model; None where there is none that can be shown.

    Args:
        manifest: of the model.
        folder: of the artefact; None for a run.
    """
    if folder is not None and (example := _kept_example(manifest, folder)) is not None:
        return example
    reading = manifest.get("preprocessing") or {}
    if reading.get("kind") == "table":
        return Example(encode({"input": typical_row(reading)}), "application/json", False)
    return None


def _kept_example(manifest: Mapping[str, Any], folder: Path) -> Example | None:
    try:
        file = (folder / manifest["example"]["input"]).resolve()
        if not file.is_relative_to(folder.resolve()) or file.stat().st_size > MOST_BYTES:
            return None
        content = file.read_bytes()
        if file.suffix in FILES:
            return Example(content, FILES[file.suffix], True)
        source = _source_in(content, file.suffix)
    except (KeyError, TypeError, ValueError, OSError, zipfile.BadZipFile):  # an artefact may lack it
        return None
    return None if source is None else Example(encode({"input": source}), "application/json", True)


def _source_in(content: bytes, suffix: str) -> Any:
    """What the file of an example holds, as JSON writes it; None for other files and large arrays."""
    if suffix == ".txt":
        return content.decode()
    if suffix == ".jsonl":
        return json.loads(content.decode().splitlines()[0])
    if suffix not in (".npy", ".npz"):
        return None
    loaded = np.load(io.BytesIO(content), allow_pickle=False)
    arrays = {"": loaded} if suffix == ".npy" else dict(loaded)
    if sum(array.size for array in arrays.values()) > MOST_NUMBERS:
        return None
    lists = {name: _rounded(array.tolist()) for name, array in arrays.items()}
    return lists[""] if suffix == ".npy" else lists


def _rounded(value: Any) -> Any:
    """Nested lists with six digits a number, as much as float32 says."""
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
