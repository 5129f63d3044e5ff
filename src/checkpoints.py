"""Checkpoint files: written so that a crash loses nothing, verified by checksum, read without running code in them."""

import errno
import os
import pickle
import re
import sys
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor

from src.errors import UserError


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, flushes, verifies, then renames: a kill or a full disk leaves the former file whole."""

    _loads = False

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with beside.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            if fault := damage(beside):
                raise OSError(errno.EIO, f"what was written does not read back: {fault}")
            if not self._loads:  # once: what a module or a callback adds is of the same kind every time
                try:
                    load(beside, map_location="meta")
                except UserError as error:
                    why = str(error).partition("refused, ")[2]
                    raise UserError(f"a checkpoint of this run could not be loaded again: {why}") from error
                self._loads = True
            os.replace(beside, path)
            _flush_folder(path.parent)
        except RuntimeError as error:  # how torch's writer reports a full disk
            beside.unlink(missing_ok=True)
            if "enforce fail" in str(error) or "PytorchStreamWriter" in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    def load_checkpoint(self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = True) -> Any:
        return load(Path(path), map_location)


def _flush_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder, and needs no flush of it
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint file by its checksums; None if it is whole."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        return f"truncated, or not a checkpoint ({str(error).rstrip('.').lower()})"
    except (NotImplementedError, RuntimeError, ValueError, OSError) as error:  # a wrong byte in the zip's own tables
        return f"corrupted ({str(error).lower()})"
    return f"corrupted (checksum of {broken})" if broken else None


def load(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Reads a checkpoint; nothing inside it can run.

    Args:
        path: a file of torch.save.
        map_location: as for torch.load; "meta" reads names and shapes alone.

    Raises:
        UserError: the file is damaged, or holds more than tensors and plain values.
    """
    if fault := damage(path):
        raise UserError(f"{path.as_posix()}: {fault}")
    try:
        checkpoint = torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        raise UserError(
            f"{path.as_posix()}: refused, it holds {found[1] if found else 'an object'}, which could run code; "
            "expected tensors and plain values alone"
        ) from error
    except (RuntimeError, EOFError, ValueError, LookupError) as error:
        raise UserError(f"{path.as_posix()}: a zip archive, but not a checkpoint") from error
    if not isinstance(checkpoint, dict):
        raise UserError(f"{path.as_posix()}: expected a checkpoint, found a {type(checkpoint).__name__}")
    return checkpoint


def first_valid(candidates: list[Path], option: str) -> Path:
    """The first file that is whole; what was passed over is said in a line each.

    Raises:
        UserError: none is.
    """
    faults = []
    for path in candidates:
        fault = damage(path)
        if fault is None:
            for skipped in faults:
                print(f"warning: {skipped}; taking {path.name} instead", file=sys.stderr)
            return path
        faults.append(f"{path.as_posix()}: {fault}")
    raise UserError(f"{option}: no valid checkpoint: {'; '.join(faults)}")


def weights_of(checkpoint: dict[str, Any], path: Path) -> dict[str, Tensor]:
    """The state dict in a checkpoint of Lightning, or in a file that holds nothing else."""
    state = checkpoint.get("state_dict", checkpoint)
    if not isinstance(state, Mapping) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"{path.as_posix()}: holds no weights")
    return dict(state)


def misfits(model: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """How weights differ from a model's: names of missing, unexpected and mismatched entries, the last with shapes."""
    return {
        "mismatched": [
            f"{name} {tuple(weights[name].shape)} in the file, {tuple(model[name].shape)} in the model"
            for name in model
            if name in weights and weights[name].shape != model[name].shape
        ],
        "missing": [name for name in model if name not in weights],
        "unexpected": [name for name in weights if name not in model],
    }


def describe(found: Mapping[str, list[str]], limit: int = 4) -> str:
    """One line for `misfits`; empty if there are none."""
    parts = []
    for kind, names in found.items():
        if names:
            more = f", and {len(names) - limit} more" if len(names) > limit else ""
            parts.append(f"{kind} {len(names)}: {', '.join(names[:limit])}{more}")
    return "; ".join(parts)
