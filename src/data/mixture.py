"""Several data modules as one, each with its share of every epoch."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader

from playbook import Data, UserError, nearest

# what works on batches, which hold samples of all parts
BATCH_METHODS = ("collate", "on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
SETS = ("train_set", "val_set", "test_set", "predict_set")


class Mixture(Data):
    """Mixes several data modules: every training epoch has a share of samples from each of them.

    ```yaml
    data:
      class_path: Mixture
      init_args:
        parts:
          plays: {class_path: Text, init_args: {root: data/plays.txt, vocabulary: bytes, context_length: 128}}
          code: {class_path: Text, init_args: {vocabulary: bytes, context_length: 128}}
        weights: {plays: 0.7, code: 0.3}
        batch_size: 16
    ```

    Each part uses all of its samples once before it repeats any, then all of them again in a new order, augmented anew.
    An epoch continues each part where the previous epoch stopped. So a small part with a large weight is repeated
    within an epoch, and a large part with a small weight lasts several epochs. The samples of an epoch depend only on
    (seed, epoch), so a run resumes exactly, as with any other data.

    All parts share one vocabulary and one set of classes. The first part learns them from its data, or takes them from
    a checkpoint; the other parts use those of the first, and anything that is not in them is an error. Put the part
    with the most characters first, or use bytes for all. Validation and test use the sets of all parts, one after the
    other. `predict --input` reads as the first part does.

    Args:
        parts: data modules by name, at least two. Options for loading, such as batch_size and num_workers, belong to
            the mixture; those of the parts are not used.
        weights: share of each part in the training samples, at least 0, by its name; only their ratios count. Defaults
            to the sizes of the parts, so that every sample occurs once per epoch.
        samples_per_epoch: number of training samples in an epoch, over all processes. Defaults to the sum over all
            parts.
        batch_size: samples per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` skips the sample.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        bucket: number of training batches whose samples are sorted by length together; 0 for none.

    Shapes:
        those of the parts.

    Raises:
        ValueError: a value is out of range, or the parts make batches in different ways.
        UserError: the parts do not fit together, or one has no training samples or gets less than one per epoch.
    """

    def __init__(
        self,
        parts: dict[str, Data],
        weights: dict[str, float] | None = None,
        samples_per_epoch: int | None = None,
        batch_size: int = 64,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        bucket: int = 0,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error, timeout_s, bucket=bucket)
        if len(parts) < 2:
            raise ValueError(f"parts: expected at least two to mix, got {', '.join(parts) or 'none'}")
        if samples_per_epoch is not None and samples_per_epoch < 1:
            raise ValueError(f"samples_per_epoch: expected at least 1, got {samples_per_epoch}")
        for name, part in parts.items():
            if part.collate is None:
                raise ValueError(f"parts: {name}: {type(part).__name__} makes whole batches, so it cannot be mixed")
            if part.balanced or part.bucket:
                option = "balanced" if part.balanced else "bucket"
                raise ValueError(f"parts: {name}: {option} has no effect within a mixture, remove it")
        _check_weights(weights, list(parts))
        self.parts = parts
        self.weights = weights
        self.samples_per_epoch = samples_per_epoch
        self.first = next(iter(parts.values()))
        self.formats, self.columns, self.picture = self.first.formats, self.first.columns, self.first.picture
        self.header, self.separator, self.encoding = self.first.header, self.first.separator, self.first.encoding
        self.quotes = self.first.quotes
        for method in BATCH_METHODS:
            self._take_common(method)
        self._stages: set[str] = set()  # for which the parts are set up
        self.save_hyperparameters(ignore=["parts"])

    def prepare_data(self) -> None:
        # a part may have to wait for the vocabulary that the first one learns, so each is set up before the next
        self._set_up(self.trainer.state.fn.value if self.trainer and self.trainer.state.fn else "fit", prepares=True)

    def setup(self, stage: str) -> None:
        self._set_up(stage)
        for name in SETS:
            self._join(name, is_needed=name == "train_set" and stage == "fit")
        if hasattr(self, "train_set"):
            self._share_out()
            self._check_samples()

    def draw(self, epoch: int) -> Tensor:
        """Chooses the samples of an epoch, part by part; the base puts them in random order.

        Args:
            epoch: counted from 0.

        Returns:
            Index in `train_set`, and number of the pass over the part, (samples_per_epoch, 2).
        """
        assert isinstance(self.train_set, _Joined), "set up"
        first, rows = 0, []
        for number, (size, quota) in enumerate(zip(self.train_set.sizes, self.quotas, strict=True)):
            places = np.arange(epoch * quota, (epoch + 1) * quota)  # in all that the part ever gives
            passes = places // size
            orders = [np.random.default_rng([self.seed, number, each]).permutation(size) for each in np.unique(passes)]
            indices = np.concatenate([*orders, places[:0]])[places - passes[:1] * size]
            rows.append(np.stack([first + indices, passes], axis=1))
            first += size
        return torch.from_numpy(np.concatenate(rows))

    def train_dataloader(self) -> DataLoader:
        return self._loader("train", self._streams(), shuffle=True)

    def ids(self, dataset: Any) -> list[str]:
        """Names each sample by its part and its name there, as in `plays/val:128`."""
        names = []
        for owner, samples in zip(dataset.owners, dataset.datasets, strict=True):
            own = self.parts[owner].ids(samples)
            names += [f"{owner}/{name}" for name in (range(len(samples)) if own is None else own)]
        return names

    def read(self, source: Any) -> Any:
        """Reads one raw input as the first part does."""
        return self._reader().read(source)

    def unlabelled(self, source: Any) -> Any:
        return self._reader().unlabelled(source)

    def preprocessing(self) -> dict[str, Any] | None:
        self.first.facts = self.facts
        return self.first.preprocessing()

    def _reader(self) -> Data:
        if type(self.first).read is Data.read:
            raise UserError(f"--input: {type(self.first).__name__}, the first part, cannot read a single input")
        self.first.facts = self.facts
        return self.first

    def _take_common(self, method: str) -> None:
        """Takes a method that makes or changes batches from the first part; all must have the same."""
        functions = {name: _function(getattr(part, method)) for name, part in self.parts.items()}
        expected, *_ = functions
        for name, function in functions.items():
            if function is not functions[expected]:
                one, other = (type(self.parts[part]).__name__ for part in (expected, name))
                raise ValueError(
                    f"parts: {expected} ({one}) and {name} ({other}) have different methods `{method}`, so they cannot "
                    "share a batch"
                )
        setattr(self, method, getattr(self.first, method))

    def _set_up(self, stage: str, prepares: bool = False) -> None:
        """Sets up the parts one after the other, each with the facts of the previous ones."""
        if stage in self._stages:
            return
        merged: dict[str, Any] = {}
        stop_tokens: list[Any] = []
        for name, part in self.parts.items():
            part.trainer = self.trainer
            part.facts = {**self.facts, **merged}
            with self._named(name, knows="tokenizer" in self.facts or "classes" in self.facts):
                if prepares:
                    part.prepare_data()
                part.setup(stage)
            stop_tokens += [token for token in part.facts.get("stop_tokens", ()) if token not in stop_tokens]
            for fact, value in part.facts.items():
                if fact not in ("class_counts", "stop_tokens") and merged.setdefault(fact, value) != value:
                    raise UserError(
                        f"--data.parts.{name}: has the {fact} {value!r:.60}, earlier parts {merged[fact]!r:.60}; "
                        "expected the same"
                    )
            self.counts |= {f"{name}_{kind}": count for kind, count in part.counts.items()}
            self.skipped_samples |= {f"{name}/{sample}" for sample in part.skipped_samples}
        self.facts |= merged | ({"stop_tokens": stop_tokens} if stop_tokens else {})
        self._stages.add(stage)

    @contextmanager
    def _named(self, name: str, knows: bool) -> Iterator[None]:
        """Adds the name of the part to an error; without a checkpoint, names the first part in its place."""
        try:
            yield
        except UserError as error:
            text = str(error).replace("--data", f"--data.parts.{name}")
            if not knows:
                text = text.replace("the checkpoint", f"the part {next(iter(self.parts))}")
            raise UserError(text) from error

    def _join(self, name: str, is_needed: bool) -> None:
        """Joins the data sets of the parts that have one."""
        sets = {owner: getattr(part, name, None) for owner, part in self.parts.items()}
        if name == "predict_set" and any(dataset is not None for dataset in sets.values()):
            tests = {owner: getattr(part, "test_set", None) for owner, part in self.parts.items()}
            sets = {owner: tests[owner] if dataset is None else dataset for owner, dataset in sets.items()}
        present = {owner: dataset for owner, dataset in sets.items() if dataset is not None}
        if is_needed:
            for owner in self.parts:
                if not len(present.get(owner, ())):
                    raise UserError(f"--data.parts.{owner}: {type(self.parts[owner]).__name__} found no train samples")
        if name == "train_set" and len(present) < len(self.parts):
            return
        if present:
            setattr(self, name, _Joined(present))
        elif name == "test_set":
            self.test_set = None

    def _share_out(self) -> None:
        """Determines how many samples of an epoch each part gets."""
        assert isinstance(self.train_set, _Joined), "by _join"
        if any("class_counts" in part.facts for part in self.parts.values()):
            self.count_classes()
        sizes = self.train_set.sizes
        if self.samples_per_epoch is None:
            self.samples_per_epoch = sum(sizes)
        weights = sizes if self.weights is None else [self.weights[name] for name in self.parts]
        self.quotas = quotas(weights, self.samples_per_epoch)
        for name, weight, quota in zip(self.parts, weights, self.quotas, strict=True):
            if weight and not quota:
                raise UserError(
                    f"--data.weights: {name} gets less than one of the {self.samples_per_epoch:,} samples per epoch; "
                    "expected a larger weight, 0, or a larger --data.samples_per_epoch"
                )

    def _streams(self) -> "_Streams":
        """The training samples, augmented as by the parts' own loaders."""
        loaders: dict[str, Any] = {name: part.train_dataloader() for name, part in self.parts.items()}
        return _Streams({name: loader.samples for name, loader in loaders.items()})

    def _check_samples(self) -> None:
        """Raises an error before training if the parts' samples cannot share a batch."""
        streams = self._streams()
        try:
            samples = [streams[first] for first in (0, *streams.cumulative_sizes[:-1])]
        except Exception:  # the loader tells which sample is broken, and may leave it out
            return
        kinds = [_kind(sample) for sample in samples]
        expected, *_ = self.parts
        for name, kind in zip(self.parts, kinds, strict=True):
            if kind != kinds[0]:
                text = f"its samples are {kind}, those of {expected} {kinds[0]}; expected the same"
                raise UserError(f"--data.parts.{name}: {text}")
        try:
            assert self.collate is not None
            self.collate(samples)
        except Exception as error:
            names, text = " and ".join(self.parts), " ".join(str(error).split())
            raise UserError(f"--data.parts: samples of {names} do not fit into a batch: {text}") from error


def quotas(weights: Sequence[float], num_samples: int) -> list[int]:
    """Divides samples by weight: rounded down, then one more for those that lost the most, earlier ones first.

    Args:
        weights: at least 0, not all 0.
        num_samples: number of samples to divide.
    """
    exact = [Fraction(weight) * num_samples / sum(map(Fraction, weights)) for weight in weights]
    counts = [math.floor(share) for share in exact]
    by_loss = sorted(range(len(counts)), key=lambda part: counts[part] - exact[part])
    for part in by_loss[: num_samples - sum(counts)]:
        counts[part] += 1
    return counts


def _check_weights(weights: dict[str, float] | None, names: list[str]) -> None:
    if weights is None:
        return
    for name, weight in weights.items():
        if name not in names:
            near = nearest(name, names) or f"; expected {', '.join(names)}"
            raise ValueError(f"weights: no part is called {name}{near}")
        if not (weight >= 0 and math.isfinite(weight)):
            raise ValueError(f"weights: {name}: expected a number of at least 0, got {weight}")
    if missing := [name for name in names if name not in weights]:
        raise ValueError(f"weights: expected one for each part, got none for {', '.join(missing)}")
    if not any(weights.values()):
        raise ValueError("weights: expected at least one above 0, got only 0")


def _function(method: Any) -> Any:
    """The function of a method, which is the same for all objects of a class."""
    return getattr(method, "__func__", method)


def _kind(sample: Any) -> str:
    """What a sample consists of, without its sizes, such as `({tokens: int64 (1D)}, int64 (1D))`."""
    if isinstance(sample, Tensor):
        return f"{str(sample.dtype).removeprefix('torch.')} ({sample.ndim}D)"
    if isinstance(sample, dict):
        return f"{{{', '.join(f'{name}: {_kind(value)}' for name, value in sample.items())}}}"
    if isinstance(sample, tuple):
        return f"({', '.join(map(_kind, sample))})"
    return type(sample).__name__


class _Joined(ConcatDataset):
    """Samples of all parts, one part after the other.

    Args:
        sets: data sets by the names of their parts.
    """

    def __init__(self, sets: dict[str, Any]) -> None:
        super().__init__(sets.values())
        self.owners = tuple(sets)
        self.sizes = [len(samples) for samples in sets.values()]


class _Streams(_Joined):
    """Training samples, each augmented as by its own part."""

    def __getitem__(self, key: tuple[int, int, int] | int) -> Any:
        # overfit_batches brings a sampler of plain indices
        _, index, number = key if isinstance(key, tuple) else (0, key, 0)
        part = bisect_right(self.cumulative_sizes, index)
        first = self.cumulative_sizes[part] - self.sizes[part]
        # the pass of the part stands for the epoch; parts draw different numbers, as `index` counts through all
        return self.datasets[part][(number, index - first, index)]
