"""Reads the program's data as tensors: samples, batches, epochs, and the tensors that reach a loss."""

import dataclasses
import operator
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.utilities.data import sized_len
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from torchdoctor.running.losses import Loss
from torchdoctor.running.record import Record
from torchdoctor.running.subject import Subject
from torchdoctor.running.transfer import apply_transfer_hooks, batches_of

Item = TypeVar("Item")


def leaves(thing: Any, path: str = "") -> dict[str, Tensor]:
    """Tensors of a sample or batch by their path; numbers, NumPy arrays, pictures and texts become tensors.

    Objects with attributes (dataclasses, graphs) are entered as dicts are; what is unknown has no leaves.
    """
    if isinstance(thing, Tensor):
        return {} if thing.is_sparse or thing.is_nested else {path: thing.detach() if thing.requires_grad else thing}
    if isinstance(thing, bool | int | float | np.generic):
        return _array(np.asarray(thing), path)
    if isinstance(thing, str):
        return {path: torch.tensor(list(thing.encode()), dtype=torch.uint8)}
    if isinstance(thing, np.ndarray):
        return _array(thing, path)
    if isinstance(thing, dict):
        inner: Any = thing.items()
    elif isinstance(thing, list | tuple):
        inner = enumerate(thing)
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        inner = [(field.name, getattr(thing, field.name)) for field in dataclasses.fields(thing)]
    elif callable(as_dict := getattr(thing, "to_dict", None)):  # as graph libraries have it
        inner = cast(dict[str, Any], as_dict()).items()
    elif hasattr(thing, "__array_interface__"):  # as pictures have it
        return _array(np.asarray(thing), path)
    else:
        known = vars(thing).items() if hasattr(thing, "__dict__") and not isinstance(thing, type) else ()
        inner = [(name, value) for name, value in known if isinstance(value, Tensor | np.ndarray)]
    tensors: dict[str, Tensor] = {}
    for name, value in inner:
        tensors |= leaves(value, f"{path}.{name}" if path else str(name))
    return tensors


def _array(array: np.ndarray, path: str) -> dict[str, Tensor]:
    return {path: torch.from_numpy(np.array(array))} if array.dtype.kind in "biuf" and array.dtype != np.uint64 else {}


def train_loaders(subject: Subject) -> list[DataLoader]:
    """The Trainer's training loaders."""
    loaders = []
    for leaf in tree_leaves(subject.trainer.train_dataloader):
        loaders += leaf.flattened if isinstance(leaf, CombinedLoader) else [leaf]
    return [loader for loader in loaders if isinstance(loader, DataLoader)]


def without_workers(loader: DataLoader) -> DataLoader:
    """The loader without worker processes, which a forked probe does not need."""
    loader.num_workers, loader.timeout = 0, 0
    return loader


def until_deadline(items: Iterable[Item], limit_s: float) -> Iterator[Item]:
    """Yields items until time is up, at least one."""
    deadline = time.monotonic() + limit_s
    for item in items:
        yield item
        if time.monotonic() > deadline:
            return


def epoch_batches(subject: Subject, limit_s: float) -> Iterator[Any]:
    """The training batches of an epoch as the step gets them, until time is up."""
    for loader in train_loaders(subject):
        without_workers(loader)
    batches = batches_of(subject.trainer.train_dataloader)
    return until_deadline((apply_transfer_hooks(subject.trainer, batch) for batch in batches), limit_s)


def read_leaf(subject: Subject, path: str, limit_s: float) -> Iterator[Tensor]:
    """One tensor of the training batches, in order, until time is up."""
    loaders = train_loaders(subject)
    tensors = all_samples(loaders[0].dataset) or {} if len(loaders) == 1 else {}
    if path in tensors and tensors[path].dim() and loaders[0].batch_size:
        yield from tensors[path].split(loaders[0].batch_size)
    else:
        yield from (batch[path] for batch in map(leaves, epoch_batches(subject, limit_s)) if path in batch)


def dataset_size(dataset: Any) -> int | None:
    """The number of samples of a map-style data set, else None."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        return None
    return sized_len(dataset)


def plain_numbers(batch: Any) -> list[int] | None:
    """The sample indices of a sampler's batch; None if the sampler gives something else."""
    try:
        return [operator.index(number) for number in batch]
    except TypeError:
        return None


def short_batch_size(loader: DataLoader) -> int:
    """The size of an epoch's last batch if it is shorter and not dropped; else 0."""
    number, batch_size = sized_len(loader.sampler) or 0, loader.batch_size or 0
    return number % batch_size if number > batch_size > 0 and not loader.drop_last else 0


def spread_indices(dataset: Any, limit: int) -> list[int]:
    """Up to `limit` indices, spread evenly over the data set."""
    number = dataset_size(dataset) or 0
    return [round(step) for step in np.linspace(0, number - 1, min(limit, number))]


def all_samples(dataset: Any) -> dict[str, Tensor] | None:
    """All samples at once for a data set of tensors or a subset of one; else None."""
    if isinstance(dataset, TensorDataset):
        return {str(number): tensor.detach() for number, tensor in enumerate(dataset.tensors)}
    if isinstance(dataset, Subset):
        inner = all_samples(dataset.dataset)
        index = torch.as_tensor(list(dataset.indices), dtype=torch.long)
        return None if inner is None else {path: tensor[index] for path, tensor in inner.items()}
    return None


def underlying_dataset(dataset: Any) -> Dataset:
    """The data set below any subsets and concatenations."""
    while isinstance(dataset, Subset | ConcatDataset):
        dataset = dataset.dataset if isinstance(dataset, Subset) else dataset.datasets[0]
    return dataset


def target_paths(loss: Loss, batch: Any) -> list[str]:
    """Paths of the batch's tensors that the loss gets as its target, up to shape and type."""
    target = loss.target.detach().flatten()
    same = []
    for path, leaf in leaves(batch).items():
        alike = leaf.numel() == target.numel() and not leaf.is_complex()
        if alike and torch.equal(leaf.flatten().to(torch.float64), target.to(torch.float64)):
            same.append(path)
    return same


def class_leaf(subject: Subject) -> tuple[str, int] | None:
    """The path of the batch's class labels in the first step, and the number of classes."""
    if not subject.batches:
        return None
    for loss in subject.attempt().losses:
        classes = {"classes": loss.num_classes, "binary": 2}.get(loss.kind, 0) if loss.prediction.dim() else 0
        if loss.kind == "binary" and loss.target.numel() != loss.target.shape[:1].numel():
            continue  # several labels a sample
        if loss.target.numel() != loss.prediction.shape[:1].numel() or classes < 2:
            continue
        for path in target_paths(loss, subject.batches[0]):
            return path, classes
    return None


def loader_owner(subject: Subject) -> pl.LightningDataModule | pl.LightningModule:
    """The module or data module whose loaders are used."""
    return subject.data if subject.data is not None else subject.model


def asks_model(subject: Subject, fetch: Callable[[], Any]) -> bool:
    """Whether a part of the model, or another model of its class, is called for a batch."""
    with Record() as record:
        fetch()
    called = {*(module for module, _, _ in record.calls), *(op.module for op in record.ops)}
    return not called.isdisjoint(subject.model.modules()) or any(type(part) is type(subject.model) for part in called)
