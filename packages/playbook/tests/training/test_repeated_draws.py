"""An evaluation of data that are augmented at random repeats its draws: `test` gives what `fit` ended with."""

import json
from pathlib import Path
from typing import Any

import pytest

from playbook.testing.command import Cli

OWN = """
import random
import lightning.pytorch as pl
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Noisy(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return torch.rand(3) + np.random.rand() + random.random(), index % 2

class Data(pl.LightningDataModule):
    def __init__(self, num_workers: int = 0):
        super().__init__()
        self.num_workers = num_workers
    def loader(self):
        return DataLoader(Noisy(), 4, num_workers=self.num_workers)
    train_dataloader = val_dataloader = test_dataloader = loader

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
    def forward(self, x):
        return self.layer(x)
    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self(batch[0].float()), batch[1])
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.training_step(batch, batch_idx))
    def test_step(self, batch, batch_idx):
        noise = torch.randn(())  # as a variational autoencoder draws
        self.log("test_loss", nn.functional.cross_entropy(self(batch[0].float()), batch[1]) + noise)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
"""


def measured(stage: str) -> Any:
    return json.loads(Path("run/metrics.json").read_text())[stage]


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_test_of_a_checkpoint_agrees_with_that_of_its_training(cli: Cli, workdir: Path, num_workers: int) -> None:
    (workdir / "noisy_own.py").write_text(OWN)
    recipe = ("--model", "noisy_own.Model", "--data", "noisy_own.Data", "--data.num_workers", str(num_workers))
    quick = ("--trainer.max_epochs", "2", "--trainer.accelerator", "cpu", "--run_dir", "run")
    assert cli("fit", *recipe, *quick).code == 0
    first = measured("test")
    assert cli("test", "--ckpt_path", "run").code == 0
    assert measured("test") == first
    assert cli("test", "--ckpt_path", "run", "--seed_everything", "5").code == 0
    assert measured("test") != first
