"""A checkpoint that is one file, of torch.save or of safetensors: what is wrong with it, and what is in it."""

import pickle
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from playbook.checkpoints.files import archive_fault
from playbook.errors import UserError

PREFIX = "prefix"  # in the metadata of safetensors: what the names of weights begin with in the task


def damage(file: Path) -> str | None:
    """What is wrong with the file by its checksums; None if it is whole."""
    if not is_safetensors(file):
        return archive_fault(file)
    try:
        with safe_open(file, framework="pt"):
            return None
    except (SafetensorError, OSError) as error:
        return f"truncated, or not a checkpoint ({error})"


def is_safetensors(path: Path) -> bool:
    """Whether a file says so of itself, by the first bytes of its header; its name may be any."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def read(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """What is in a file that is whole; nothing inside it can run.

    Args:
        path: of torch.save or of safetensors.
        map_location: as for torch.load; "meta" reads names and shapes alone.

    Raises:
        UserError: it holds more than tensors and plain values, or is no checkpoint.
    """
    with understood(path):
        if is_safetensors(path):
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                prefix = metadata.pop(PREFIX, "") if "class_path" in metadata else ""
                names = file.keys()  # it is no dict
                weights = {f"{prefix}{name}": file.get_tensor(name).to(map_location) for name in names}
                return {**metadata, "state_dict": weights}
        # the warning is of the pickle's protocol: other protocols than torch's own load too
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            checkpoint = torch.load(path, map_location=map_location, weights_only=True)
    if not isinstance(checkpoint, dict):
        raise UserError(f"{path.as_posix()}: expected a checkpoint, found a {type(checkpoint).__name__}")
    return checkpoint


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Turns the errors of reading a file that is no checkpoint, or none to trust, into one line.

    Raises:
        UserError: reading failed.
    """
    try:
        yield
    except UserError:
        raise
    except (
        pickle.UnpicklingError,
        RuntimeError,
        EOFError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        SafetensorError,
    ) as error:
        name = re.search(r"GLOBAL (\S+)", str(error))
        if name or "Weights only load failed" in str(error):
            raise UserError(
                f"{path.as_posix()}: refused, it contains {name[1] if name else 'an object'}, which could run code; "
                "expected only tensors and plain values"
            ) from error
        what = "a folder" if path.is_dir() else "a zip archive"
        raise UserError(f"{path.as_posix()}: {what}, but not a checkpoint") from error
