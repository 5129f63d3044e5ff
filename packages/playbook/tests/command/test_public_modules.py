"""Modules as they are published: their own import of Lightning, and base classes that save their arguments."""

from pathlib import Path

import pytest
import torch

from playbook import load_run
from playbook.testing.command import Cli

MODULE = """
import pytest
import torch
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from torch.utils.data import DataLoader, TensorDataset


class Base(pl.LightningModule):
    def __init__(self, width: int, lr: float):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Linear(self.hparams.width, 1)

    def training_step(self, batch, batch_idx):
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


class Model(Base):
    def __init__(self, width: int = 4):
        super().__init__(width, lr=0.5)


class BaseData(pl.LightningDataModule):
    def __init__(self, number, batch_size):
        super().__init__()
        self.save_hyperparameters("number")
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(self.hparams.number, 4)), batch_size=self.batch_size)


class Data(BaseData):
    def __init__(self, batch_size: int = 2):
        super().__init__(6, batch_size=batch_size)
"""


def test_a_module_of_the_former_package_trains(cli: Cli, workdir: Path) -> None:
    (workdir / "published.py").write_text(MODULE)
    data = ["--model", "published.Model", "--data", "published.Data", "--trainer.max_epochs", "1", "--run_dir", "run"]
    done = cli("fit", *data, "--checkpoint.monitor", "null")
    assert done.code == 0, done.err
    assert "pytorch_lightning: imported as lightning.pytorch, its present name" in done.err

    import published  # type: ignore[import-not-found]  # written above

    checkpoint = torch.load("run/checkpoints/last.ckpt", weights_only=True)
    assert checkpoint["optimizer_states"][0]["param_groups"][0]["lr"] == 0.5
    model = published.Model.load_from_checkpoint("run/checkpoints/last.ckpt")
    assert torch.equal(model.net.weight, checkpoint["state_dict"]["net.weight"])


TEMPLATE = """
import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch.utils.data import DataLoader, TensorDataset


class Module(LightningModule):
    def __init__(
        self, net: torch.nn.Module, optimizer: torch.optim.Optimizer, scheduler: torch.optim.lr_scheduler, compile: bool
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.net = net

    def training_step(self, batch, batch_idx):
        return self.net(batch[0]).square().mean()

    def test_step(self, batch, batch_idx):
        self.log("test/loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self):
        optimizer = self.hparams.optimizer(params=self.trainer.model.parameters())
        scheduler = self.hparams.scheduler(optimizer=optimizer)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


class Data(LightningDataModule):
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(6, 4)), batch_size=2)

    test_dataloader = train_dataloader
"""

RECIPE = """
model:
  class_path: layout.Module
  init_args:
    net: {class_path: torch.nn.Linear, init_args: {in_features: 4, out_features: 1}}
    optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.5}}
    scheduler: {class_path: torch.optim.lr_scheduler.StepLR, init_args: {step_size: 1}}
    compile: false
data: {class_path: layout.Data}
trainer: {max_epochs: 1}
"""


@pytest.mark.slow
def test_a_module_in_the_layout_of_the_hydra_template(cli: Cli, workdir: Path) -> None:
    """Its optimizer is annotated as one, and called through `self.hparams` (ashleve/lightning-hydra-template)."""
    (workdir / "layout.py").write_text(TEMPLATE)
    (workdir / "recipe.yaml").write_text(RECIPE)
    done = cli("fit", "--config", "recipe.yaml", "--model.optimizer.momentum", "0.5", "--run_dir", "run")
    assert done.code == 0, done.err
    done = cli("fit", "--run_dir", "run", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    assert done.code == 0, done.err
    checkpoint = torch.load("run/checkpoints/last.ckpt", weights_only=True)
    arguments = checkpoint["hyper_parameters"]
    assert arguments["optimizer"]["class_path"] == "torch.optim.SGD"
    assert arguments["net"]["init_args"]["in_features"] == 4
    (group,) = checkpoint["optimizer_states"][0]["param_groups"]
    assert group["momentum"] == 0.5
    assert group["lr"] == pytest.approx(0.005)  # two epochs
    done = cli("test", "--ckpt_path", "run")
    assert done.code == 0, done.err
    assert load_run("run").module.hparams["optimizer"].func is torch.optim.SGD
