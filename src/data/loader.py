"""A DataLoader that says which sample or worker failed, and goes on without a broken sample if asked to."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from torch.utils.data import DataLoader, Dataset, Subset, default_collate

from src.errors import UserError

TOLD = 10  # skipped samples that are named; all are counted


class DataError(UserError):
    """A sample or a worker failed; training so far is sound, and is saved before this ends the run."""


class Loader(DataLoader):
    """Batches of a map-style data set, with failures told by sample, file and cause.

    Args:
        dataset: samples by index; a training set's may be asked by (epoch, index).
        on_error: what a sample does whose loading raises: stop the training, or be left out of its batch.
        skipped: is told every sample that was left out, as text.
        collate: makes a batch of samples.
        options: as for DataLoader.
    """

    def __init__(
        self,
        dataset: Any,
        on_error: Literal["stop", "skip"],
        skipped: Callable[[str], None],
        collate: Callable[[list[Any]], Any] = default_collate,
        **options: Any,
    ) -> None:
        super().__init__(_Guarded(dataset), collate_fn=_Collate(collate), **options)
        self.on_error = on_error
        self.skipped = skipped

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator around torch's iterator
        main_thread = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGCHLD")
        former = signal.getsignal(signal.SIGCHLD) if main_thread else None
        batches = super().__iter__()
        if main_thread:  # torch's handler would raise at any place, amid a step; a dead worker is found in next() too
            signal.signal(signal.SIGCHLD, former or signal.SIG_DFL)
        while True:
            try:
                batch, failures = next(batches)
            except StopIteration:
                return
            except RuntimeError as error:
                raise _worker_failure(error) or error from error
            for failure in failures:
                if self.on_error == "stop":
                    raise DataError(f"--data: {failure}")
                self.skipped(failure)
            if batch is None:
                raise DataError(f"--data: every sample of a batch failed, the last one was {failures[-1]}")
            yield batch


def _worker_failure(error: RuntimeError) -> DataError | None:
    text = str(error)
    if text.startswith("DataLoader timed out"):
        return DataError(f"--data.timeout_s: no batch came within {text.split()[4]} s: a loader worker hangs")
    if text.startswith("DataLoader worker"):
        return DataError(
            f"--data.num_workers: a {text.splitlines()[0].rstrip('. ')}; out of memory, or killed from outside"
        )
    return None


class _Failure:
    """Stands for a sample that could not be loaded: an exception itself would lose its text on its way to a worker."""

    def __init__(self, text: str) -> None:
        self.text = text


class _Guarded(Dataset):
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: Any) -> Any:
        try:
            return self.dataset[key]
        except Exception as error:
            index = key[1] if isinstance(key, tuple) else key
            file = getattr(error, "filename", None) or file_of(self.dataset, index)
            return _Failure(
                f"sample {index}{f' ({file})' if file else ''}: {type(error).__name__}: {' '.join(str(error).split())}"
            )


class _Collate:
    """Takes the failures out of a batch before it is collated; both go to the main process."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: list[Any]) -> tuple[Any, list[str]]:
        failures = [sample.text for sample in samples if isinstance(sample, _Failure)]
        whole = [sample for sample in samples if not isinstance(sample, _Failure)]
        return (self.collate(whole) if whole else None), failures


def file_of(dataset: Any, index: int) -> str | None:
    """The file that a sample comes from, where the data set keeps a list of them as torchvision's do."""
    while not _has_files(dataset) and hasattr(dataset, "dataset"):
        if isinstance(dataset, Subset):
            index = int(dataset.indices[index])
        dataset = dataset.dataset
    for name in FILE_LISTS:
        entries = getattr(dataset, name, None)
        if isinstance(entries, Sequence) and not isinstance(entries, str) and index < len(entries):
            entry = entries[index][0] if isinstance(entries[index], tuple | list) else entries[index]
            if isinstance(entry, str) or hasattr(entry, "as_posix"):
                return str(entry)
    return None


FILE_LISTS = ("samples", "imgs", "files", "paths", "images")


def _has_files(dataset: Any) -> bool:
    return any(hasattr(dataset, name) for name in FILE_LISTS)
