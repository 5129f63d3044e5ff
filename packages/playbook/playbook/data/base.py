"""The base of all data modules: splits, loaders, and an order that can be resumed from any step."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from playbook.data.classes import count_classes, targets_of
from playbook.data.copies import copied_files, copies_in
from playbook.data.files import file_of, name_others, relative_name
from playbook.data.guard import find_failures
from playbook.data.loader import Loader
from playbook.data.order import EpochOrder, SeededSamples
from playbook.data.workers import live_as_long_as_parent
from playbook.errors import UserError
from playbook.facts import plain_facts
from playbook.processes import gathered, shard_of
from playbook.training.lightning.position import position

MAX_NAMED = 10  # skipped samples that are named; all are counted


class Data(LightningDataModule):
    """Loaders over map-style data sets; a subclass sets `train_set`, `val_set` and `test_set` in `setup`.

    The order of epoch e depends only on (seed, e), and the random numbers of `augment` for sample i only on (seed, e,
    i). To resume with bitwise the same batches, with any number of workers, a checkpoint therefore needs only a
    position (epoch, batch). The seed is `seed_everything`. With `balanced`, the random numbers depend on (seed, e,
    position in the epoch) instead, so that they differ between repetitions of a sample. Evaluation keeps the order, and
    neither drops nor repeats samples.

    Args:
        batch_size: samples per batch and process, B, at least 1.
        num_workers: number of loader processes; 0 loads in the main process.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out of its batches and counts it once (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        balanced: whether to sample every class equally often. The number of samples in an epoch stays the same: those
            of rare classes are repeated, each time augmented anew, and every epoch uses a different part of frequent
            classes. On a long-tailed Fashion-MNIST this raised the mean per-class accuracy from 0.696 to 0.836 (3
            seeds), and lowered the accuracy on equally imbalanced data from 0.904 to 0.833 (benchmarks/LOG.md).
        bucket: number of training batches whose samples are sorted by length together, to put samples of similar length
            into a batch and reduce padding; the batches are then shuffled. 0 turns it off. For SST-2 in batches of 32,
            53 % of the tokens were padding without it, 12 % with 10 and 3 % with 50.
        check_files: whether `check_loading`, which `setup` may call, loads every sample once before training.

    Attributes:
        facts: plain values learnt from the training data that users of the model need, such as the names of `classes`.
            `setup` fills in missing values. A checkpoint restores its facts before `setup`, so that its classes keep
            their numbers. Saved in every checkpoint. `count_classes` adds `class_counts`.

    Raises:
        ValueError: a value is out of range.
    """

    # training batches are a function of (seed, epoch, batch), and start at a checkpoint's position; loaders of data
    # modules without this attribute are adapted to the same rule where possible
    resumes_exactly = True
    # random changes of one training sample; it may draw from Python, NumPy or torch, all are seeded. Leave it None if
    # nothing changes: seeding has its cost at every sample (benchmarks/LOG.md)
    augment: Callable[[Any], Any] | None = None
    # of a TensorDataset, in place of `augment`: changes a whole batch at once. Takes its tensors (B, …) and uniform
    # random numbers in [0, 1), (B, num_draws), which depend on the same as those of `augment`
    augment_batch: Callable[[list[Tensor], Tensor], Iterable[Tensor]] | None = None
    num_draws = 2
    collate: Callable[[list[Any]], Any] | None = staticmethod(default_collate)  # makes a batch of samples
    # what `draw` paints on: bytes (3, H, W) from a path or bytes of a file; None where inputs are no images
    picture: Callable[[Any], Tensor] | None = None
    formats: tuple[str, ...] = ()  # suffixes of the files that `read` takes; all files if none is named
    # of data that reads rows, such as texts: columns for `read`, the first that a row has; it gets the row as a dict, a
    # line as text, or the path of a file that is no list
    columns: tuple[str, ...] = ()
    header: bool = True  # whether the first row of a table of inputs names its columns; if not, they are 1, 2, …
    separator: str | None = None  # between their fields; None for the comma of .csv and the tab of .tsv
    quotes: bool = True  # whether quotes enclose fields of a .csv; if not, they are text, as in a .tsv
    encoding: str = ""  # of text files; empty where no option sets it: UTF-8
    # names of facts that belong to a model's weights, such as the codes of embeddings; --init_from brings them along
    facts_of_weights: tuple[str, ...] = ("tokenizer",)
    samples_per_epoch: int | None = None  # of training, if `draw` chooses them; None if each comes once
    train_set: Dataset
    val_set: Dataset
    predict_set: Dataset | None = None  # what `predict` predicts, if it is not the test set
    test_set: Dataset | None  # None if there is none: `fit` then ends without a test

    def __init__(
        self,
        batch_size: int = 64,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        balanced: bool = False,
        bucket: int = 0,
        check_files: bool = False,
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
        if num_workers < 0:
            raise ValueError(f"num_workers: expected at least 0, got {num_workers}")
        if timeout_s < 0:
            raise ValueError(f"timeout_s: expected at least 0 seconds, got {timeout_s}")
        if bucket < 0:
            raise ValueError(f"bucket: expected at least 0 batches, got {bucket}")
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.on_error: Literal["stop", "skip"] = on_error
        self.timeout_s = timeout_s
        self.balanced = balanced
        self.bucket = bucket
        self.check_files = check_files
        self._is_checked = False
        self.facts: dict[str, Any] = {}
        self.has_trained = False  # whether a checkpoint has given the facts, so that its training has said the rest
        self.skipped_samples: set[str] = set()
        self._num_named = 0
        self.predicted: set[int] = set()  # samples that a repeated `predict` need not predict again
        self.counts: dict[str, int] = {}  # of what `setup` did not take as it is, for metrics.json
        self._start: tuple[int, int] | None = None  # (epoch, batch) of a checkpoint, where the next pass begins
        self.moved_to: int | None = None  # that batch, if it has another number than in the checkpoint

    @property
    def seed(self) -> int:
        return int(os.environ.get("PL_GLOBAL_SEED", "0"))  # set by seed_everything

    @property
    def speaks(self) -> bool:
        """Whether this process prints what all processes find, as only the first one does."""
        return self.trainer is None or self.trainer.is_global_zero

    def tell_copies(self, splits: Mapping[str, Sequence[Any]], kind: str = "files") -> None:
        """Says how many samples of other splits are copies of training samples; call it in `setup`.

        Args:
            splits: for `train` and other splits, the file of each sample, or what identifies its content.
            kind: what a sample is, such as files or rows. Only files are read; their number and size are bounded.
        """
        if self.has_trained or not self.speaks:
            return
        for split, indices in (copied_files if kind == "files" else copies_in)(splits).items():
            total, first = len(splits[split]), splits[split][indices[0]]
            named = f", such as {first.as_posix()}" if isinstance(first, Path) else ""
            text = f"{len(indices):,} of {total:,} {split} {kind} are copies of training {kind}{named}"
            print(f"warning: {text}; scores of {split} will be too good", file=sys.stderr)

    def check_loading(self) -> None:
        """With `check_files`, loads every sample once; call it at the end of `setup`.

        With on_error skip, samples that cannot be loaded are counted, and named as in training.

        Raises:
            UserError: samples cannot be loaded, with on_error stop.
        """
        if not self.check_files or self._is_checked:
            return
        self._is_checked = True
        sets = {"train": self.train_set, "val": self.val_set, "test": getattr(self, "test_set", None)}
        for name, dataset in sets.items():
            failures = find_failures(dataset, name) if dataset is not None else []
            if failures and self.on_error == "stop":
                total = len(dataset)  # type: ignore[arg-type]  # every data set here has a length
                text = f"{len(failures)} of {total} {name} samples cannot be loaded, such as {failures[0].text}"
                raise UserError(f"--data: {text}; --data.on_error skip leaves them out")
            for failure in failures:
                self._skip(failure.name, failure.text)

    def count_classes(self) -> None:
        """Adds the fact `class_counts`, the training samples per class; call it in `setup`, after `train_set`."""
        targets = targets_of(self.train_set)
        if targets is not None:
            self.facts["class_counts"] = count_classes(targets, len(self.facts.get("classes", ())))

    def ids(self, dataset: Any) -> Sequence[str] | None:
        """Names each sample of a data set: its file relative to `root`, or its row as in train.csv:17.

        Args:
            dataset: the data set of one of the loaders.

        Returns:
            One name per sample, its number if its file is missing; None if no sample comes from a file, and all are
            numbered.
        """
        files = [file_of(dataset, index) for index in range(len(dataset))]
        if not any(files):
            return None
        root = getattr(self, "root", None)
        return [str(index) if file is None else relative_name(file, root) for index, file in enumerate(files)]

    def prepare_read(self) -> None:
        """Called once before `predict --input` reads, with the facts of the checkpoint; brings them up to date."""

    def read(self, source: Any) -> Any:
        """Reads one raw input without a label, preprocessed exactly as in evaluation; needs `facts`, but no `setup`.

        Args:
            source: path or bytes of a file.

        Returns:
            The inputs of one sample, as in a batch but without its dimension B.
        """
        raise NotImplementedError

    def unlabelled(self, source: Any) -> Any:
        """The sample of a raw input for `collate`: the return value of `read`, and -1 as the unknown target."""
        return self.read(source), -1

    def about(self, source: Any) -> dict[str, Any]:
        """Columns of an input in the table of `predict --input`, before its answer, such as the times of a window.

        Args:
            source: as for `read`.
        """
        return {}

    def preprocessing(self) -> dict[str, Any] | None:
        """How `read` prepares an input, in plain values, so that an exported model can do it without this repository.

        Needs `facts`, but no `setup`. playbook/deploy/runtime knows these kinds: `image`, with steps of
        images.py; `text`, `masked_text`, `prompt` and `chat`, of texts.py; `table`, of tables.py; `audio`, of audio.py.

        Returns:
            Lists, dicts, text and numbers; None if an exported model takes arrays alone.
        """
        return None

    def draw(self, epoch: int) -> Tensor:
        """Chooses the training samples of an epoch, as a function of (seed, epoch); for data with `samples_per_epoch`.

        Args:
            epoch: counted from 0.

        Returns:
            Index in `train_set` of each sample, and a number that seeds the sample's augmentation and occurs only once
            with this index in the whole training, (samples_per_epoch, 2).
        """
        raise NotImplementedError

    def train_dataloader(self) -> DataLoader:
        samples = SeededSamples(self.train_set, self.seed, self.augment, self.augment_batch, self.num_draws)
        return self._loader("train", samples, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return self._loader("val", self.val_set)

    def test_dataloader(self) -> DataLoader:
        if self.test_set is None:
            place = f" in {Path(root).as_posix()}" if (root := getattr(self, "root", None)) is not None else ""
            raise UserError(f"--data: {type(self).__name__} found no test data{place}")
        return self._loader("test", self.test_set)

    def predict_dataloader(self) -> DataLoader:
        return self.test_dataloader() if self.predict_set is None else self._loader("test", self.predict_set)

    def input_loader(self, dataset: Dataset, batch_size: int | None = None) -> DataLoader:
        """A loader of `unlabelled` samples for `predict --input`.

        Args:
            dataset: data set of these samples.
            batch_size: samples per batch. Defaults to that of the data module.
        """
        options: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
        return Data._loader(self, "input", dataset, collate=self.collate or default_collate, **options)

    def _loader(self, name: str, dataset: Dataset, shuffle: bool = False, **options: Any) -> DataLoader:
        if len(dataset) == 0:  # type: ignore[arg-type]  # every data set here has a length
            raise UserError(f"--data: {type(self).__name__} found no {name} samples")
        order = EpochOrder(self, dataset, shuffle)
        return Loader(
            dataset,
            name,
            self.on_error,
            self._skip,
            options.get("collate", self.collate),
            batch_size=options.get("batch_size", order.batch_size()),
            sampler=order,
            num_workers=self.num_workers,
            timeout=self.timeout_s if self.num_workers else 0,
            persistent_workers=self.num_workers > 0,
            pin_memory=options.get("pin_memory", torch.cuda.is_available()),
            worker_init_fn=live_as_long_as_parent,
            # without its own, every iter() would draw from the global generator and shift the dropout after it
            generator=torch.Generator().manual_seed(self.seed),
        )

    def _skip(self, sample: str, failure: str) -> None:
        if sample in self.skipped_samples:  # fails in every epoch, and again where a checkpoint continues
            return
        self.skipped_samples.add(sample)
        self._num_named += 1
        if self._num_named <= MAX_NAMED:
            more = "; further ones are only counted" if self._num_named == MAX_NAMED else ""
            print(f"\nwarning: skipped {failure}{more}", file=sys.stderr)

    def _left_out(self, kind: str, count: int, text: str) -> None:
        """Counts samples that `setup` leaves out, for metrics.json, and prints a warning."""
        name = f"left_out_{kind}"
        self.counts[name] = self.counts.get(name, 0) + count
        if self.speaks:
            print(f"warning: left out {text}", file=sys.stderr)

    def leave_out_others(self, folders: Sequence[Path], unmentioned: Sequence[str] = ()) -> None:
        """Counts and says which files below some folders are left out because of their suffix; call it in `setup`.

        Args:
            folders: where `setup` looked for files of `formats`.
            unmentioned: suffixes of files that nobody expects to be read, such as annotations.
        """
        count, text = name_others(folders, self.formats, unmentioned)
        if count:
            self._left_out("files", count, text)

    def state_dict(self) -> dict[str, Any]:
        epoch, batch = (0, 0) if self.trainer is None else position(self.trainer)
        return {
            "epoch": epoch,
            "batch": batch,
            "batch_size": self._global_batch_size(),
            "skipped_samples": sorted(self.gather_skipped()),
            **({"facts": plain_facts(self.facts)} if self.facts else {}),
        }

    def gather_skipped(self) -> set[str]:
        """Collects the samples that were skipped in any process; all processes must call this together."""
        if self.trainer is not None:
            self.skipped_samples.update(*gathered(self.trainer, self.skipped_samples))
        return self.skipped_samples

    def gather_counts(self) -> dict[str, int]:
        """Numbers of samples that `setup` left out or any process skipped, for metrics.json, without zeros.

        All processes must call this together.
        """
        samples = self.gather_skipped()
        return {**self.counts, **({"skipped_samples": len(samples)} if samples else {})}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # for load_from_checkpoint; a Trainer has given them before
        self.facts = self.facts or state_dict.get("facts", {})
        batch, size = state_dict["batch"], self._global_batch_size()
        former = state_dict.get("batch_size", size)
        steps = self.trainer.accumulate_grad_batches if self.trainer else 1
        if batch and (former != size or batch % steps):
            num_seen, batch = batch * former, batch * former // (size * steps) * steps
            self.moved_to = batch
            if self.speaks:
                change = f"batches of {size} samples, not {former}" if former != size else f"{steps} batches a step"
                text = f"continuing with {change}: {num_seen:,} samples of the epoch done"
                repeats = f", {num_seen - batch * size} of them are repeated" if num_seen > batch * size else ""
                others = "; buckets depend on the batch size, so the rest of the epoch has other samples"
                print(text + repeats + (others if self.bucket and former != size else ""), flush=True)
        self._start = (state_dict["epoch"], batch)
        self.skipped_samples = set(state_dict.get("skipped_samples", ()))

    @property
    def hparams_initial(self) -> Any:
        """Hyperparameters for loggers, without names that the task also has: Lightning refuses two values of a name."""
        task = getattr(self.trainer, "lightning_module", None)
        hparams = super().hparams_initial
        for name in task.hparams if task is not None else ():
            hparams.pop(name, None)
        return hparams

    def _global_batch_size(self) -> int:
        return self.batch_size * shard_of(self.trainer)[1]

    def _position(self) -> tuple[int, int]:
        """Epoch and first batch of the pass that begins now."""
        epoch = self.trainer.current_epoch if self.trainer else 0
        start, self._start = self._start, None
        # a schedule that asks for the number of steps has Lightning build the loader before it restores the epoch; a
        # run that goes on with a validation asks for its first batch an epoch later
        return start if start and start[0] >= epoch else (epoch, 0)
