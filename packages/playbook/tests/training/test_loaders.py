"""Every DataLoader that a training accepts can also validate, test and predict, in one process and in several."""

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.utilities import CombinedLoader
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from jobs import Group
from playbook.errors import UserError
from playbook.testing.command import QUIET, UNSAVED, Cli
from playbook.testing.line import Line, Points, points
from playbook.training.loaders import ShareOfBatches, even_share
from playbook.training.trainer import Trainer

NUM_SAMPLES = 11


class Identity(pl.LightningModule):
    """Predicts the number that a sample is."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.num_seen = {"fit": 0, "validate": 0, "test": 0}

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        self.num_seen["fit"] += len(batch[0])
        return (self.scale * batch[0]).sum() * 0

    def validation_step(self, batch: list[Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        self.num_seen["validate"] += len(batch[0])

    def test_step(self, batch: list[Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        self.num_seen["test"] += len(batch[0])

    def predict_step(self, batch: list[Tensor], batch_idx: int, dataloader_idx: int = 0) -> Tensor:
        return batch[0]

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def numbers() -> TensorDataset:
    return TensorDataset(torch.arange(NUM_SAMPLES, dtype=torch.float32))


class Own(DataLoader):
    """A loader with arguments of its own, none of which it keeps under its name."""

    def __init__(self, path: str, size_of_a_batch: int) -> None:
        assert path == "here"
        super().__init__(numbers(), size_of_a_batch)


class Stream(IterableDataset):
    """Yields its samples, and knows no length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(numbers())


class Pairs:
    """Yields batches of indices, without any of the attributes that torch's BatchSampler has."""

    def __iter__(self) -> Iterator[list[int]]:
        return (list(range(i, min(i + 2, NUM_SAMPLES))) for i in range(0, NUM_SAMPLES, 2))

    def __len__(self) -> int:
        return (NUM_SAMPLES + 1) // 2


class Longest(BatchSampler):
    """Has arguments of its own."""

    def __init__(self, num_samples: int) -> None:
        super().__init__(SequentialSampler(range(num_samples)), 4, drop_last=True)


class Batches:
    """Is an iterable of batches, and no DataLoader."""

    def __iter__(self) -> Iterator[list[Tensor]]:
        return iter([[part] for part in torch.arange(NUM_SAMPLES).float().split(3)])


def doubled(samples: list[tuple[Tensor]]) -> list[Tensor]:
    return [2 * torch.stack([number for (number,) in samples])]


LOADERS: dict[str, Any] = {
    "size by position": lambda: DataLoader(numbers(), 4),
    "all by position": lambda: DataLoader(numbers(), 4, False, None, None, 0, None, False, False),
    "own arguments": lambda: Own("here", 4),
    "a list as batch sampler": lambda: DataLoader(numbers(), batch_sampler=[[0, 1, 2], list(range(3, NUM_SAMPLES))]),
    "a batch sampler": lambda: DataLoader(numbers(), batch_sampler=Pairs()),
    "a subclass as batch sampler": lambda: DataLoader(numbers(), batch_sampler=Longest(NUM_SAMPLES)),
    "whole batches": lambda: DataLoader(list(Batches()), None),  # type: ignore[arg-type]
    "a custom collate": lambda: DataLoader(numbers(), 4, collate_fn=doubled),
    "a stream": lambda: DataLoader(Stream(), 4),
    "several": lambda: [DataLoader(numbers(), 4), Own("here", 3)],
    "combined": lambda: CombinedLoader([DataLoader(numbers(), 4), Own("here", 3)], "sequential"),
    "no DataLoader": Batches,
    "drops the last": lambda: DataLoader(numbers(), 4, drop_last=True),
}


class Data(pl.LightningDataModule):
    """Gives the same loader to everyone: the one it keeps, or a new one each time."""

    def __init__(self, name: str, keeps: bool) -> None:
        super().__init__()
        self.loader_name = name  # `name` is Lightning's
        self.kept_loader = LOADERS[name]() if keeps else None

    def loader(self) -> Any:
        return self.kept_loader if self.kept_loader is not None else LOADERS[self.loader_name]()

    train_dataloader = val_dataloader = test_dataloader = predict_dataloader = loader


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "new"])
@pytest.mark.parametrize("name", LOADERS)
def test_every_verb_takes_every_loader(name: str, keeps: bool) -> None:
    module, data = Identity(), Data(name, keeps)
    trainer = Trainer(run_dir=False, **UNSAVED, max_epochs=1, num_sanity_val_steps=0, barebones=False)
    if name not in ("several", "combined"):  # a training would zip them
        trainer.fit(module, datamodule=data)
        full = {"drops the last": 8, "a subclass as batch sampler": 8}.get(name, NUM_SAMPLES)
        assert module.num_seen == {"fit": full, "validate": full, "test": 0}
        trainer.validate(module, datamodule=data)
        trainer.test(module, datamodule=data)
        assert module.num_seen == {"fit": full, "validate": 2 * full, "test": full}
    outputs = trainer.predict(module, datamodule=data)
    per_loader = outputs if name in ("several", "combined") else [outputs]
    for batches in per_loader:
        factor = 2 if name == "a custom collate" else 1
        assert torch.equal(torch.cat(batches), factor * torch.arange(NUM_SAMPLES))
    again = trainer.predict(module, datamodule=data)
    assert str(again) == str(outputs), "the data module's own loader is left as it was"


def test_a_loader_keeps_its_class_and_attributes() -> None:
    module, data = Identity(), Data("own arguments", keeps=True)
    assert isinstance(data.kept_loader, Own)
    data.kept_loader.note = "mine"
    trainer = Trainer(run_dir=False, **UNSAVED)
    trainer.predict(module, datamodule=data)
    used = trainer.predict_dataloaders
    assert type(used) is Own
    assert used.note == "mine"  # type: ignore[attr-defined]
    assert used.dataset is data.kept_loader.dataset
    assert type(data.kept_loader.batch_sampler) is BatchSampler


def test_a_prediction_writer_gets_the_indices(tmp_path: Path) -> None:
    class Writer(BasePredictionWriter):
        def write_on_batch_end(self, *args: Any) -> None:
            indices.append(args[3])

    indices: list[Any] = []
    trainer = Trainer(run_dir=False, **UNSAVED, callbacks=[Writer("batch")])
    for name in ("own arguments", "a list as batch sampler"):
        indices.clear()
        trainer.predict(Identity(), datamodule=Data(name, keeps=False))
        assert list(chain.from_iterable(indices)) == list(range(NUM_SAMPLES))
        assert len(indices[0]) == (4 if name == "own arguments" else 3)


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 4])
@pytest.mark.parametrize("sizes", [[4, 4, 3], [1, 1, 1, 1], [2, 7, 1], []])
def test_shares_of_batches_deal_samples_out(sizes: list[int], num_replicas: int) -> None:
    """Sample i goes to process i mod P, as `predict` numbers its rows; no batch mixes two of the sampler's."""
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    batches = [list(range(first, end)) for first, end in pairwise(ends)]
    for rank in range(num_replicas):
        share = ShareOfBatches(batches, num_replicas, rank)
        yielded = list(share)
        assert list(chain.from_iterable(yielded)) == list(range(rank, sum(sizes), num_replicas))
        assert all(any(set(part) <= set(batch) for batch in batches) for part in yielded)
        assert len(share) == len(yielded)


@pytest.mark.parametrize("num_samples", range(1, 20))
@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
@pytest.mark.parametrize("world", [2, 3])
def test_an_evaluation_by_several_processes_counts_each_sample_once(
    num_samples: int, batch_size: int, world: int
) -> None:
    loader = DataLoader(TensorDataset(torch.arange(num_samples)), batch_size)
    shares = [
        even_share(cast(Any, Rank(world, rank)), loader, shuffle=False) for rank in range(world)
    ]  # either of all or of none
    if None in shares:
        assert shares == [None] * world
        assert num_samples < world or (batch_size == 1 and num_samples % world)
        return
    batches = [[batch[0].tolist() for batch in share] for share in shares if share]
    assert sorted(chain.from_iterable(chain.from_iterable(batches))) == list(range(num_samples))
    assert len({len(share) for share in batches}) == 1
    assert all(len(batches[0]) == len(share) for share in shares if share)
    assert all(0 < len(batch) <= batch_size for share in batches for batch in share)


def test_an_evaluation_in_an_order_of_its_own_counts_each_sample_once() -> None:
    samples = TensorDataset(torch.arange(9))
    loader = DataLoader(samples, 2, sampler=cast(Any, [8, 6, 4, 2, 0]))
    shares = [even_share(cast(Any, Rank(2, rank)), loader, shuffle=True) for rank in (0, 1)]
    assert [[batch[0].tolist() for batch in share] for share in shares if share] == [[[8, 4], [0]], [[6], [2]]]
    shuffled = [even_share(cast(Any, Rank(2, rank)), DataLoader(samples, 2, shuffle=True), True) for rank in (0, 1)]
    drawn = [number for share in shuffled if share for batch in share for number in batch[0].tolist()]
    assert sorted(drawn) == list(range(9)) != drawn


@dataclass
class Rank:
    """What a loader's share depends on, of a Trainer."""

    world_size: int
    rank: int

    @property
    def distributed_sampler_kwargs(self) -> dict[str, int]:
        return {"num_replicas": self.world_size, "rank": self.rank}


def test_positional_batch_size_on_the_command_line(cli: Cli, workdir: Path) -> None:
    command = ("--model", f"{__name__}.Identity", "--data", f"{__name__}.Data", "--data.keeps", "false")
    data = ("--data.name", "size by position", "--run_dir", "run")
    done = cli("fit", *command, *data, "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu")
    assert done.code == 0, done.err
    for verb in ("validate", "test", "predict"):
        done = cli(verb, "--ckpt_path", "run")
        assert done.code == 0, done.err
    assert predicted(Path("run")) == list(range(NUM_SAMPLES))


def predicted(run: Path) -> list[float]:
    [table] = (run / "predictions").glob("*.csv")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [str(number) for number in range(len(rows))]
    return [float(row["prediction"]) for row in rows]


@pytest.mark.parametrize("overfit", [0, 2])
def test_a_shuffled_loader_by_position(overfit: int) -> None:
    class Shuffled(pl.LightningDataModule):
        def train_dataloader(self) -> DataLoader:
            return DataLoader(numbers(), 4, True)

    module = Identity()
    module.validation_step = None  # type: ignore[assignment,method-assign]
    Trainer(run_dir=False, **UNSAVED, max_epochs=2, overfit_batches=overfit).fit(module, datamodule=Shuffled())
    assert module.num_seen["fit"] == 2 * (8 if overfit else NUM_SAMPLES)


RECIPE = ("--model", f"{__name__}.Identity", "--data", f"{__name__}.Data", "--data.keeps", "false")
TWO = ("--trainer.accelerator", "cpu", "--trainer.strategy", "ddp", "--trainer.devices", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds a run that two processes have trained, on the loader that is hardest to build anew."""
    folder = tmp_path_factory.mktemp("two")
    options = ("--data.name", "own arguments", "--run_dir", "run", "--trainer.max_epochs", "1")
    Group(2, "fit", *RECIPE, *TWO, *options, "--trainer.limit_val_batches", "0", cwd=folder).finish()
    return folder


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts a group of processes")
@pytest.mark.parametrize("name", ["all by position", "own arguments", "a batch sampler", "a subclass as batch sampler"])
def test_two_processes_share_the_samples(folder: Path, name: str) -> None:
    options = ("--ckpt_path", "run", "--data.name", name, "--run_dir", name.replace(" ", "-"))
    Group(2, "predict", *options, *TWO, cwd=folder).finish()
    assert predicted(folder / name.replace(" ", "-")) == list(range(NUM_SAMPLES))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts a group of processes")
def test_a_stream_that_every_process_repeats_is_announced(folder: Path) -> None:
    group = Group(
        2, "predict", "--ckpt_path", "run", "--data.name", "a stream", "--run_dir", "stream", *TWO, cwd=folder
    )
    out = group.finish()
    assert out.count("warning: --data: Stream is an IterableDataset, so each of the 2 processes predicts all") == 1


COUNTS = """
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2))
        self.seen = 0
    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch[0]).square().mean(), sync_dist=True, on_step=True, on_epoch=True)
    def on_test_start(self):
        self.seen = 0
    def test_step(self, batch, batch_idx):
        self.seen += len(batch[0])
        self.log("test_loss", self.layer(batch[0]).mean(), sync_dist=True)
    def on_test_epoch_end(self):
        self.log("test_seen", self.trainer.strategy.reduce(torch.tensor(float(self.seen)), reduce_op="sum"))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

class Data(pl.LightningDataModule):
    def __init__(self, size: int = 8):
        super().__init__()
        self.size = size
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.linspace(-1, 1, 32)[:, None]), 8)
    def loader(self):
        return DataLoader(TensorDataset(torch.linspace(-1, 1, 33)[:, None]), self.size)
    val_dataloader = test_dataloader = loader
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts a group of processes")
@pytest.mark.parametrize(("size", "num_seen"), [(8, 33), (1, 34)])
def test_two_processes_evaluate_each_sample_once_or_say_so(tmp_path: Path, size: int, num_seen: int) -> None:
    (tmp_path / "counts_own.py").write_text(COUNTS)
    model = ("--model", "counts_own.Model", "--data", "counts_own.Data", "--data.size", str(size))
    out = Group(2, "fit", *model, *TWO, "--trainer.max_epochs", "1", "--run_dir", "run", cwd=tmp_path).finish()
    assert json.loads((tmp_path / "run/metrics.json").read_text())["test"]["test_seen"] == num_seen
    said = "warning: --data: 1 of the 33 test samples count more than once, so that each of the 2 processes"
    assert out.count(said) == (num_seen == 34)
    assert ("replicates some samples" in out) == (num_seen == 34)  # Lightning's words


class NoneAt(Points):
    """Points without loaders for some stages."""

    def __init__(self, nothing: Any, *stages: str) -> None:
        super().__init__()
        self.nothing, self.stages = nothing, stages

    def val_dataloader(self) -> Any:
        return self.nothing if "val" in self.stages else points()

    def test_dataloader(self) -> Any:
        return self.nothing if "test" in self.stages else points()

    def predict_dataloader(self) -> Any:
        return self.nothing if "predict" in self.stages else points()


@pytest.mark.parametrize("nothing", [None, []])
@pytest.mark.parametrize("overfit_batches", [0, 1])
def test_no_loader_to_evaluate_on(
    workdir: Path, nothing: Any, overfit_batches: int, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {**QUIET, "max_epochs": 1, "overfit_batches": overfit_batches}
    trainer = Trainer(**settings, run_dir=Path("run"))
    trainer.fit(Line(), datamodule=NoneAt(nothing, "val", "test"))
    out = capsys.readouterr().out
    assert out.count("no validation: NoneAt.val_dataloader() returned no DataLoader") == 1
    assert "Results        loss: train" in out


@pytest.mark.parametrize(("verb", "stage"), [("validate", "val"), ("test", "test"), ("predict", "predict")])
def test_asking_for_an_evaluation_without_data(workdir: Path, verb: str, stage: str) -> None:
    trainer = Trainer(**QUIET, run_dir=False)
    with pytest.raises(UserError, match=rf"^--data: NoneAt\.{stage}_dataloader\(\) returned no DataLoader"):
        getattr(trainer, verb)(Line(), datamodule=NoneAt(None, stage))
