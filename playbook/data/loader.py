"""A DataLoader that names the sample or worker that failed, and can skip broken samples."""

import multiprocessing
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from os import PathLike
from os.path import isfile  # Path's raises where a text is too long for a name
from typing import Any, Literal

from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, default_collate, get_worker_info
from torch.utils.data._utils import signal_handling

from playbook.errors import UserError

MAX_TRIES = 100  # samples after a training batch of which none loads
HINTS = {"SIGKILL": "; out of memory, or killed from outside", "SIGBUS": "; out of shared memory, see /dev/shm"}


class DataError(UserError):
    """A sample or a worker failed; the training so far is valid, and is saved before this error ends the run."""


class Loader(DataLoader):
    """Loads batches of a map-style data set, and names sample, file and cause of a failure.

    Without workers a batch of 64 samples took 0.50 ms in place of 0.47 (a TensorDataset, CPU time, medians of 39
    passes that alternated with torch's loader, 2 busy CPU cores).

    Args:
        dataset: samples by index; a training set may take (epoch, index, draw).
        name: name of the set in messages, such as `train`.
        on_error: what happens when loading a sample raises: `stop` ends the training, `skip` leaves the sample out of
            its batch. As the position in an epoch counts batches, a training batch without any sample gets the next
            sample of the data set that can be loaded.
        skipped: called for every skipped sample, with its name, such as `train 17`, and a sentence.
        collate: combines samples into a batch; None where the data set's `__getitems__` does so.
        options: as for DataLoader.

    Raises:
        DataError: while iterating, if a sample fails and on_error is `stop`; if all samples of an evaluation fail, or
            all of a training batch and 100 after it; if a worker dies; if no worker delivers within `timeout` seconds.
    """

    def __init__(
        self,
        dataset: Any,
        name: str,
        on_error: Literal["stop", "skip"],
        skipped: Callable[[str, str], None],
        collate: Callable[[list[Any]], Any] | None = default_collate,
        **options: Any,
    ) -> None:
        guard = _Guarded if collate else _GuardedBatches
        self._guarded = guard(dataset, name, options.get("num_workers", 0), name == "train" and on_error == "skip")
        super().__init__(self._guarded, collate_fn=_Collate(collate) if collate else _unfailing, **options)
        self.on_error = on_error
        self.skipped = skipped
        self._last_pass: Any = None  # of workers that live on, which serve the next pass too
        self.indices: deque[list[int]] = deque()  # in an evaluation, of the samples of each batch, until they are taken

    def __iter__(self) -> Iterator[Any]:
        with self._watched(self._last_pass), _without_torch_handler():
            batches: Any = super().__iter__()
        if self.num_workers:
            _leave_out_of_torch_handler(batches)
        if self.persistent_workers:
            self._last_pass = batches
        has_yielded, lost = False, ""
        is_evaluation = self._guarded.name != "train"
        order = iter(self.sampler) if is_evaluation else iter(())
        self.indices.clear()
        while True:
            try:
                with self._watched(batches):
                    batch, failures = next(batches)
            except StopIteration:
                if lost and not has_yielded and not getattr(self.sampler, "is_rest", False):
                    raise DataError(lost) from None
                return
            indices = list(islice(order, self.batch_size))
            for failure in failures:
                if self.on_error == "stop":
                    print(failure.trace, end="", file=sys.stderr)
                    if self._guarded.name == "input":
                        raise DataError(f"--input: {failure.text}; --data.on_error skip leaves such inputs out")
                    raise DataError(f"--data: {failure.text}")
                self.skipped(failure.name, failure.text)
            if batch is None:
                lost = f"--data: every sample of a batch failed, the last one was {failures[-1].text}"
                if not is_evaluation:
                    raise DataError(lost)
            else:
                has_yielded = True
                failed = {failure.index for failure in failures}
                if is_evaluation:
                    self.indices.append([int(index) for index in indices if index not in failed])
                yield batch

    @property
    def samples(self) -> Any:
        """The data set that the batches come from."""
        return self._guarded.dataset

    @contextmanager
    def _watched(self, batches: Any) -> Iterator[None]:
        """Raises at once when a worker dies, and ends a hang that torch's own timeout would not end.

        A worker that keeps Python's lock sends no file descriptors, which the main process would read for ever.
        """
        workers = getattr(batches, "_workers", [])  # private to torch, which publishes neither them nor their ids
        former: dict[str, Any] = {}

        def on_death(number: int, frame: Any) -> None:
            self._check(workers)
            if callable(former["SIGCHLD"]):  # as torch's, where another DataLoader's worker died
                former["SIGCHLD"](number, frame)

        handlers = {"SIGCHLD": on_death, "SIGALRM": _time_out} if workers and _handles_deaths() else {}
        former |= {name: signal.getsignal(getattr(signal, name)) for name in handlers}
        for name, handler in handlers.items():
            signal.signal(getattr(signal, name), handler)
        timer = signal.setitimer(signal.ITIMER_REAL, self.timeout and self.timeout + 1) if handlers else (0.0, 0.0)
        try:
            self._check(workers)
            yield
        except (RuntimeError, OSError, EOFError) as error:  # the latter two where a dead worker's data is fetched
            for worker in workers:
                worker.join(timeout=0.1)  # its files are closed a moment before it counts as dead
            self._check(workers)
            if str(error).startswith("DataLoader timed out"):
                raise self._hang(workers) from error
            raise
        finally:
            if handlers:
                signal.setitimer(signal.ITIMER_REAL, *timer)
            for name, handler in former.items():
                signal.signal(getattr(signal, name), handler)

    def _check(self, workers: list[Any]) -> None:
        for number, worker in enumerate(workers):
            if worker.exitcode:
                killer = signal.Signals(-worker.exitcode).name if worker.exitcode < 0 else ""
                ended = f"was killed by {killer}" if killer else f"exited with code {worker.exitcode}"
                place = self._guarded.place(number) or " between two samples"
                raise DataError(
                    f"--data.num_workers: worker {number} (pid {worker.pid}) {ended}{place}{HINTS.get(killer, '')}"
                )

    def _hang(self, workers: list[Any]) -> DataError:
        places = {number: self._guarded.place(number) for number in range(len(workers))}
        for worker in workers:
            worker.kill()  # one that hangs in C code heeds nothing else, and would keep this process from its end
        at_work = ", ".join(f"worker {number} is{place}" for number, place in places.items() if place)
        text = f"--data.timeout_s: no batch came within {self.timeout:g} s: "
        return DataError(text + (at_work or "no worker is loading a sample"))


def _handles_deaths() -> bool:
    """Whether this thread may set handlers of signals, on a system that has this one."""
    return hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread()


@contextmanager
def _without_torch_handler() -> Iterator[None]:
    """Keeps torch from installing its handler of SIGCHLD for the workers that start in here.

    That handler raises wherever the main process is when a worker dies, even in an optimizer step. torch has no public
    way to do without it, so its mark "installed" is set, and put back afterwards: other DataLoaders install the handler
    for themselves.
    """
    if not _handles_deaths():
        yield
        return
    former = signal_handling._SIGCHLD_handler_set
    signal_handling._SIGCHLD_handler_set = True
    try:
        yield
    finally:
        signal_handling._SIGCHLD_handler_set = former


def _leave_out_of_torch_handler(batches: Any) -> None:
    """Removes the workers of a pass from those that torch's handler checks; another DataLoader may have installed it.

    An empty entry stays, which torch removes when the workers end.
    """
    signal_handling._remove_worker_pids(id(batches))
    signal_handling._set_worker_pids(id(batches), ())


def _time_out(*_: Any) -> None:
    raise TimeoutError("DataLoader timed out")


class _Failure:
    """Stands for a sample that could not be loaded: an exception itself would lose its text on its way to a worker."""

    def __init__(self, name: str, index: int, text: str, trace: str) -> None:
        self.name = f"{name} {index}"
        self.index = index
        self.text = text
        self.trace = trace


class _Guarded(Dataset):
    """Samples, or failures in their place; the main process can see which sample each worker is loading."""

    def __init__(self, dataset: Any, name: str, num_workers: int, fills: bool) -> None:
        self.dataset = dataset
        self.name = name
        self.fills = fills  # batches that would be empty
        self.in_hand = multiprocessing.RawArray("q", [-1] * num_workers)  # by worker, in shared memory

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, keys: list[Any]) -> list[Any]:
        samples = [self[key] for key in keys]
        for step in range(1, 1 + MAX_TRIES if self.fills else 0):
            if not all(isinstance(sample, _Failure) for sample in samples):
                break
            index = (_index(keys[-1]) + step) % len(self)
            samples.append(self[(keys[-1][0], index, index) if isinstance(keys[-1], tuple) else index])
        return samples

    def __getitem__(self, key: Any) -> Any:
        worker = get_worker_info() if self.in_hand else None
        if worker is not None:
            self.in_hand[worker.id] = _index(key)
        try:
            return self.dataset[key]
        except Exception as error:  # whatever the user's data set raises
            index = _index(key)
            file = getattr(error, "filename", None) or file_of(self.dataset, index)
            cause = _cause(error).removeprefix(f"{file}: ")  # which the place names already
            return _Failure(self.name, index, f"{self.describe(index, file)}: {cause}", _trace(error))
        finally:
            if worker is not None:
                self.in_hand[worker.id] = -1

    def describe(self, index: int, file: Any = None) -> str:
        names = getattr(self.dataset, "names", None)  # of rows, such as list.csv:17
        file = file or file_of(self.dataset, index) or (names[index] if names else None)
        return f"{self.name} sample {index}" + (f" ({file})" if file else "")

    def place(self, worker: int) -> str:
        """« at train sample 17 (17.png)» for a worker, or nothing while it has none in hand."""
        index = self.in_hand[worker]
        return "" if index < 0 else f" at {self.describe(index)}"


class _GuardedBatches(_Guarded):
    """Batches of a data set that holds its samples in memory already: none of them can fail to load."""

    def __getitems__(self, keys: list[Any]) -> Any:
        return self.dataset.__getitems__(keys)


def _cause(error: Exception) -> str:
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}".removesuffix(": ")


def _trace(error: Exception) -> str:
    """The traceback from the data set on; nothing where a file or the data set itself says what is wrong."""
    if isinstance(error, OSError | UserError) or error.__traceback__ is None:
        return ""
    return "\n" + "".join(traceback.format_exception(type(error), error, error.__traceback__.tb_next))


def _index(key: Any) -> int:
    return int(key[1] if isinstance(key, tuple) else key)


class _Collate:
    """Takes the failures out of a batch before it is collated; both go to the main process."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: list[Any]) -> tuple[Any, list[_Failure]]:
        failures = [sample for sample in samples if isinstance(sample, _Failure)]
        if failures:
            samples = [sample for sample in samples if not isinstance(sample, _Failure)]
        return (self.collate(samples) if samples else None), failures


def _unfailing(batch: Any) -> tuple[Any, list[_Failure]]:
    return batch, []


def file_of(dataset: Any, index: int) -> str | None:
    """The file of a sample, where the data set or one inside it keeps a list of files with an entry a sample."""
    for entries in getattr(dataset, "__dict__", {}).values():
        if isinstance(entries, list | tuple) and len(entries) == len(dataset):
            entry = entries[index]
            file = next(iter(entry), None) if isinstance(entry, tuple | list) else entry
            if isinstance(file, str | PathLike) and isfile(file):
                return str(file)
    if isinstance(dataset, Subset):
        return file_of(dataset.dataset, int(dataset.indices[index]))
    if isinstance(dataset, ConcatDataset):
        before = 0
        for part, end in zip(dataset.datasets, dataset.cumulative_sizes, strict=True):
            if index < end:
                return file_of(part, index - before)
            before = end
    inner = getattr(dataset, "dataset", None)
    return None if inner is None else file_of(inner, index)
