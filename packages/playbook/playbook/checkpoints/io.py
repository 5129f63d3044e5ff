"""Checkpoints: written so that a crash loses nothing, verified by checksum, read without running code in them."""

import errno
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor

from playbook.checkpoints import single
from playbook.checkpoints.files import replace, write_archive
from playbook.checkpoints.plain import pack_hyperparameters
from playbook.errors import UserError
from playbook.runs.directory import remove

_whole: set[tuple[Any, ...]] = set()  # files and folders whose checksums were verified: once in a process is enough


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, flushes, verifies, then renames: the previous file survives a kill or a full disk."""

    _loads = False

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        path = Path(path)
        pack_hyperparameters(checkpoint)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            write_archive(checkpoint, beside)
            require_readable(beside, loads=self._loads)
            self._loads = True
            replace(beside, path)
        except BaseException:  # a signal too leaves nothing half written
            remove(beside)
            raise

    def load_checkpoint(self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = True) -> Any:
        return load(Path(path), map_location)


def require_readable(path: Path, loads: bool) -> None:
    """Reads back what was written.

    Args:
        path: the file.
        loads: whether one of this run was loaded before: what a module or a callback adds is of the same kind every
            time, so that once is enough.

    Raises:
        OSError: the disk returns other bytes.
        UserError: it holds what cannot be loaded again.
    """
    if fault := damage(path):
        raise OSError(errno.EIO, f"what was written does not read back: {fault}")
    if not loads:
        try:
            load(path, map_location="meta")
        except UserError as error:
            why = str(error).partition("refused, ")[2]
            raise UserError(f"a checkpoint of this run could not be loaded again: {why}") from error


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, a file or a folder, by its checksums; None if it is whole."""
    states = [(file, file.stat()) for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    key = tuple((file.absolute(), s.st_ino, s.st_size, s.st_mtime_ns) for file, s in states)
    if key in _whole:
        return None
    if path.is_dir():
        from playbook.checkpoints import folders  # what it imports of torch takes a while

        fault = folders.damage(path)
    else:
        fault = single.damage(path)
    if fault is None:
        _whole.add(key)
    return fault


def load(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Reads a checkpoint; nothing inside it can run.

    Args:
        path: a file of torch.save, one of safetensors, or a folder that several processes wrote.
        map_location: as for torch.load; "meta" reads names and shapes alone.

    Raises:
        UserError: it is damaged, or holds more than tensors and plain values.
    """
    if fault := damage(path):
        raise UserError(f"{path.as_posix()}: {fault}")
    if path.is_dir():
        from playbook.checkpoints import folders

        return folders.consolidate(path, names_only=map_location == "meta")
    return single.read(path, map_location)


def first_valid(candidates: list[Path], option: str) -> Path:
    """The first intact file; prints a warning for each file that was skipped.

    Raises:
        UserError: no file is intact.
    """
    faults = []
    for path in candidates:
        fault = damage(path)
        if fault is None:
            for skipped in faults:
                print(f"warning: {skipped}; using {path.name} instead", file=sys.stderr)
            return path
        faults.append(f"{path.as_posix()}: {fault}")
    raise UserError(f"{option}: no valid checkpoint: {'; '.join(faults)}")


def weights_of(checkpoint: dict[str, Any], path: Path) -> dict[str, Tensor]:
    """The state dict in a checkpoint of Lightning, or in a file that holds nothing else."""
    state = checkpoint.get("state_dict", checkpoint)
    if not isinstance(state, Mapping) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"{path.as_posix()}: contains no weights")
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


def describe(differences: Mapping[str, list[str]], limit: int = 4) -> str:
    """One line for `misfits`; empty if there are none."""
    parts = []
    for kind, names in differences.items():
        if names:
            more = f", and {len(names) - limit} more" if len(names) > limit else ""
            parts.append(f"{kind} {len(names)}: {', '.join(names[:limit])}{more}")
    return "; ".join(parts)
