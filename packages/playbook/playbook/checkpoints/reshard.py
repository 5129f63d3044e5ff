"""Reads a checkpoint into tensors that lie on devices in another way than the one that was saved."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Size, Tensor
from torch.distributed.checkpoint import (
    CheckpointException,
    ChunkStorageMetadata,
    DefaultLoadPlanner,
    FileSystemReader,
    LoadPlan,
    LoadPlanner,
    Metadata,
    ReadItem,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint import load as load_shards
from torch.distributed.checkpoint._nested_dict import flatten_state_dict  # private, as are the names that it gives
from torch.distributed.checkpoint.metadata import TensorProperties
from torch.futures import Future

from playbook.checkpoints.files import full_disk
from playbook.checkpoints.single import understood
from playbook.errors import UserError


class Stored(Protocol):
    """Where the entries of a checkpoint are read from, by the names that they have in a folder."""

    @property
    def entries(self) -> Mapping[str, Any]:
        """By name."""
        ...

    def value(self, name: str, names_only: bool = False) -> Any:
        """A whole tensor, or a plain value."""

    def reader(self) -> FileSystemReader:
        """For torch.distributed.checkpoint.load."""
        ...


class InMemory:
    """A checkpoint of a single file, to be split as if it came from a folder with one shard for each tensor.

    Args:
        nested: state dicts by the names that they have in a folder.
    """

    def __init__(self, nested: dict[str, Any]) -> None:
        self.entries, _ = flatten_state_dict(nested)

    def value(self, name: str, names_only: bool = False) -> Any:
        return self.entries[name]

    def reader(self) -> FileSystemReader:
        return _MemoryReader(tensors_of(self.entries))


class _MemoryReader(FileSystemReader):
    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__("")
        self.tensors = tensors

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        entries: dict[str, Any] = {
            name: TensorStorageMetadata(
                TensorProperties.create_from_tensor(tensor),
                tensor.size(),
                [ChunkStorageMetadata(Size([0] * tensor.dim()), tensor.size())],
            )
            for name, tensor in self.tensors.items()
        }
        return Metadata(entries, storage_data={})

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            part = self.tensors[item.storage_index.fqn]
            for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                part = part.narrow(dim, offset, length)
            planner.resolve_tensor(item).detach().copy_(part)
        done: Future[None] = Future()
        done.set_result(None)
        return done


class _TensorsAlone(DefaultLoadPlanner):
    def load_bytes(self, read_item: ReadItem, value: Any) -> None:
        """Torch's own would run what is in it."""
        raise UserError(f"{read_item.dest_index.fqn}: expected a tensor")


def fill(own: dict[str, Any], stored: Stored, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads the entries that are stored into tensors of this process, each its shard alone; the others stay out.

    Settings of parameter groups that are not stored stay as they are.

    Args:
        own: a state dict of this process by the name that it has in a folder; its tensors are written into.
        stored: the checkpoint.
        path: of it, for messages.

    Returns:
        The entries by name, and where each belongs in the nested state dict.

    Raises:
        UserError: a tensor has another shape, or is none.
    """
    flat, paths = flatten_state_dict(own)
    tensors = {name: value for name, value in tensors_of(flat).items() if name in stored.entries}
    try:
        load_shards(tensors, storage_reader=stored.reader(), planner=_TensorsAlone(flatten_state_dict=False))
    except CheckpointException as error:
        failure = first_failure(error)
        raise UserError(f"--ckpt_path {path.as_posix()}: does not fit: {failure}") from error
    with understood(path):
        others = {name: stored.value(name) for name in flat if name in stored.entries and name not in tensors}
    settings = {name: value for name, value in flat.items() if paths[name][1] == "param_groups"}
    return {**settings, **tensors, **others}, paths


def tensors_of(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Those of the values that are tensors."""
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def first_failure(error: CheckpointException) -> Exception:
    """What went wrong in the first process where something did."""
    failure = error.failures[min(error.failures)][0]
    return full_disk(failure) or (failure if isinstance(failure, Exception) else RuntimeError(repr(failure)))
