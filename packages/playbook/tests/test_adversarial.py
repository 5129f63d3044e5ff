"""Two optimizers in turn, as of a generative adversarial network, trained by two processes."""

import shutil
import sys
from pathlib import Path

import pytest

from jobs import Group

OWN = """
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.linspace(-1, 1, 64).view(32, 2)), 4)

class GAN(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.discriminator = nn.Linear(3, 2), nn.Linear(2, 1)
    def training_step(self, batch, batch_idx):
        of_generator, of_discriminator = self.optimizers()
        made = self.generator(torch.randn(len(batch[0]), 3))
        self.toggle_optimizer(of_generator)
        of_generator.zero_grad()
        self.manual_backward(-self.discriminator(made).mean())
        of_generator.step()
        self.untoggle_optimizer(of_generator)
        self.toggle_optimizer(of_discriminator)
        of_discriminator.zero_grad()
        self.manual_backward(self.discriminator(made.detach()).mean() - self.discriminator(batch[0]).mean())
        of_discriminator.step()
        self.untoggle_optimizer(of_discriminator)
    def configure_optimizers(self):
        return [torch.optim.Adam(net.parameters(), 1e-3) for net in (self.generator, self.discriminator)]
"""
FIT = ("fit", "--model", "gan_own.GAN", "--data", "gan_own.Data", "--trainer.max_epochs", "1", "--run_dir", "run")
TWO = ("--trainer.accelerator", "cpu", "--trainer.devices", "2", "--trainer.strategy")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts a group of processes")
def test_unused_parameters_are_a_line(tmp_path: Path) -> None:
    (tmp_path / "gan_own.py").write_text(OWN)
    group = Group(2, *FIT, *TWO, "ddp", cwd=tmp_path)
    assert set(group.wait()) == {2}
    said = group.output()
    assert "error: --trainer.strategy: a backward pass leaves parameters without a gradient" in said  # of each process
    assert "use ddp_find_unused_parameters_true" in said
    assert "Traceback" not in said
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    Group(2, *FIT, *TWO, "ddp_find_unused_parameters_true", cwd=tmp_path).finish()
