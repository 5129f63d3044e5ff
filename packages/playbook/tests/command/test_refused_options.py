"""What Lightning refuses of the Trainer's options and its callbacks', most of it after the start, is one line."""

from pathlib import Path

import pytest

from playbook.testing.command import Cli

OWN = """
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, IterableDataset

class Data(pl.LightningDataModule):
    def loader(self):
        x = torch.linspace(-1, 1, 48).view(16, 3)
        return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), 4)
    train_dataloader = val_dataloader = test_dataloader = loader

class Stream(IterableDataset):
    def __iter__(self):
        for i in range(8):
            yield torch.full((3,), float(i)), i % 2

class Endless(Data):
    def train_dataloader(self):
        return DataLoader(Stream(), 4)

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
    def forward(self, x):
        return self.layer(x)
    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.training_step(batch, batch_idx))
    def test_step(self, batch, batch_idx):
        self.log("test_loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

class Manual(Model):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
    def training_step(self, batch, batch_idx):
        o = self.optimizers()
        o.zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        o.step()
    def validation_step(self, batch, batch_idx):
        pass

class Normed(Model):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
"""
TRAINER = [  # options of the Trainer, in order with their values
    "val_check_interval=50",
    "val_check_interval=1.5",
    "val_check_interval=0.5 check_val_every_n_epoch=null",
    "check_val_every_n_epoch=0",
    "limit_train_batches=0.01",
    "limit_val_batches=0.01",
    "limit_test_batches=0.01",
    "limit_val_batches=-1",
    "limit_val_batches=1.5",
    "accumulate_grad_batches=0",
    "gradient_clip_algorithm=foo gradient_clip_val=1",
    "profiler=foo",
    "profiler=simpl",
    "strategy=fsdp",
    "strategy=deepspeed",
    "strategy=foo",
    "precision=17",
    "accelerator=gpu",
    "accelerator=cuda",
    "accelerator=tpu",
    "accelerator=foo",
    "devices=0",
    "devices=-2",
    "devices=foo",
    "num_nodes=0",
    "num_sanity_val_steps=-2",
    "reload_dataloaders_every_n_epochs=-1",
    "min_epochs=-2",
    "min_steps=-2",
    "fast_dev_run=-1",
]
CALLBACKS = {
    "StochasticWeightAveraging swa_lrs=-1": "--trainer.callbacks.swa_lrs: ",
    "StochasticWeightAveraging swa_lrs=[0.1,0.2]": "--trainer.callbacks: StochasticWeightAveraging: swa_lr must have",
    "StochasticWeightAveraging swa_lrs=0.1 swa_epoch_start=1.5": "--trainer.callbacks.swa_epoch_start: ",
    "StochasticWeightAveraging swa_lrs=0.1 annealing_strategy=foo": "--trainer.callbacks.annealing_strategy: ",
    "StochasticWeightAveraging swa_lrs=0.1 annealing_epochs=-1": "--trainer.callbacks: StochasticWeightAveraging: ",
    "ModelCheckpoint save_top_k=-3": "--trainer.callbacks.save_top_k: ",
    "Timer duration=foo": "--trainer.callbacks.duration: ",
    "ModelPruning pruning_fn=foo": "--trainer.callbacks.pruning_fn: ",
    "BatchSizeFinder mode=foo": "--trainer.callbacks.mode: ",
    "BackboneFinetuning": "--trainer.callbacks: BackboneFinetuning: 'Model' object has no attribute 'backbone'",
}
ON_CPU = ("--trainer.accelerator", "cpu")
OPTIONS = ("--trainer.max_epochs", "1", "--run_dir", "run")


@pytest.fixture(autouse=True)
def own(workdir: Path) -> None:
    (workdir / "refused_own.py").write_text(OWN)


def mistake(cli: Cli, *args: str, model: str = "Model", data: str = "Data") -> str:
    """Runs fit, which must fail as a mistake of the user; returns its message."""
    options = [*([] if "--trainer.accelerator" in args[0] else ON_CPU), *OPTIONS, *args]
    done = cli("fit", "--model", f"refused_own.{model}", "--data", f"refused_own.{data}", *options)
    assert done.code == 2, (done.out, done.err)
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1, done.err
    return done.err.removeprefix("error: ")


@pytest.mark.parametrize("given", TRAINER)
def test_an_option_of_the_trainer(cli: Cli, given: str) -> None:
    said = mistake(cli, *(f"--trainer.{option}" for option in given.split()))
    name, _, value = given.split(maxsplit=1)[0].partition("=")
    assert said.startswith(f"--trainer.{name}: ")
    assert value in said


@pytest.mark.parametrize("name", ["limit_train_batches", "val_check_interval", "overfit_batches"])
def test_a_share_of_a_stream(cli: Cli, name: str) -> None:
    said = mistake(cli, f"--trainer.{name}", "0.5", data="Endless")
    assert said == (
        f"--trainer.{name}: expected a whole number of batches, as an IterableDataset has no length, got 0.5\n"
    )


@pytest.mark.parametrize("name", ["gradient_clip_val", "accumulate_grad_batches"])
def test_what_manual_optimization_excludes(cli: Cli, name: str) -> None:
    said = mistake(cli, f"--trainer.{name}", "2", model="Manual")
    assert said.startswith(f"--trainer.{name}: ")
    assert f"{name}=2" in said


@pytest.mark.parametrize("also", [("--trainer.logger", "true"), ("--trainer.callbacks+=RichProgressBar",)])
def test_barebones_with_what_it_excludes(cli: Cli, also: tuple[str, ...]) -> None:
    assert mistake(cli, "--trainer.barebones", "true", *also).startswith("--trainer.barebones: ")


@pytest.mark.parametrize("given", CALLBACKS)
def test_an_option_of_a_callback(cli: Cli, given: str) -> None:
    name, *options = given.split()
    said = mistake(cli, f"--trainer.callbacks+={name}", *(f"--trainer.callbacks.{option}" for option in options))
    assert said.startswith(CALLBACKS[given])
    assert not options or options[-1].partition("=")[2] in said or "swa_lr has 2" in said


def test_a_callback_of_a_config_is_named(cli: Cli, workdir: Path) -> None:
    (workdir / "saves.yaml").write_text("trainer: {callbacks: [{class_path: Timer, init_args: {duration: foo}}]}\n")
    assert mistake(cli, "--config", "saves.yaml").startswith("saves.yaml:1: --trainer.callbacks: Timer: ")


def test_an_option_of_a_config_has_its_line(cli: Cli, workdir: Path) -> None:
    (workdir / "profiled.yaml").write_text("trainer:\n  profiler: foo\n")
    said = mistake(cli, "--config", "profiled.yaml")
    assert said.startswith("profiled.yaml:2: --trainer.profiler: ")


@pytest.mark.slow
def test_synchronised_normalization_without_a_gpu(cli: Cli) -> None:
    said = mistake(cli, "--trainer.sync_batchnorm", "true", "--trainer.strategy", "ddp", model="Normed")
    assert said == "--trainer.sync_batchnorm: expected false, as SyncBatchNorm needs a GPU, got true\n"
