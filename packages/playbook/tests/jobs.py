"""Trainings of several processes, on data that no number of processes divides."""

from typing import Any

from playbook.testing import processes
from running import CNN_DIGITS, MLP_DIGITS, PATH, PROJECT

OWN = """
import os, signal
import torch
from lightning.pytorch import Callback, LightningModule
from torch import nn
from example.data.digits import Digits
from example.tasks.classification import Classification

class Odd(Digits):
    '''Counts that no number of processes divides: batches differ in size, and their number over the ranks.'''
    def setup(self, stage):
        super().setup(stage)
        for name, count in {"train_set": 203, "val_set": 65, "test_set": 65}.items():
            whole = getattr(self, name)
            setattr(self, name, type(whole)(*(tensor[:count] for tensor in whole.tensors)))

class Broken(Odd):
    '''Samples that only the first of several processes can load.'''
    def setup(self, stage):
        super().setup(stage)
        self.augment = self.fail

    def fail(self, sample):
        if self.trainer.global_rank:
            raise ValueError("a broken file")
        return sample

class Averaged(Classification):
    '''Logs the validation loss once more, as many modules do.'''
    def validation_step(self, batch, batch_idx):
        loss = self._step("val", batch)
        self.log("val/averaged", loss, sync_dist=True, on_epoch=True, batch_size=len(batch[1]))

class Foreign(LightningModule):
    '''Knows nothing of Playbook, nor of devices: two nets, and a parameter of its own.'''
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.LayerNorm(24), nn.ReLU())
        self.head = nn.Linear(24, 10)
        self.scale = nn.Parameter(torch.ones(()))

    def training_step(self, batch, batch_idx):
        image, label = batch
        return nn.functional.cross_entropy(self.scale * self.head(self.body(image)), label)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)

class Early(Callback):
    '''SIGTERM for the first process alone, before the training.'''
    def on_validation_batch_start(self, trainer, *_):
        if trainer.is_global_zero and trainer.sanity_checking:
            os.kill(os.getpid(), signal.SIGTERM)

class Late(Callback):
    '''The same after it.'''
    def on_test_batch_start(self, trainer, *_):
        if trainer.is_global_zero:
            os.kill(os.getpid(), signal.SIGTERM)
"""
SMALL = ("--trainer.accelerator", "cpu", "--data", "own.Odd")
PLAIN = (
    "fit",
    "--config",
    MLP_DIGITS,
    *SMALL,
    "--trainer.max_epochs",
    "2",
    "--model",
    "own.Averaged",
    "--model.net.dropout",
    "0",
)
PLAIN = (*PLAIN, "--model.net.norm", "layer", "--model.net.widths", "[32]", "--model.schedule", "null")
# a batch norm, dropout and moved images: all that a run must take up again
RICH = ("fit", "--config", CNN_DIGITS, *SMALL, "--trainer.max_epochs", "5", "--trainer.log_every_n_steps", "1")
RICH = (*RICH, "--data.shift", "1", "--model.net.widths", "[4, 8]")
RICH = (*RICH, "--ckpt_path", "last", "--checkpoint.every_n_steps", "1")


def on(world: int, batch: int = 32) -> tuple[str, ...]:
    """Options for so many processes that share a batch."""
    ddp = ("--config", str(PROJECT / "configs/trainer/ddp.yaml")) if world > 1 else ()
    return (*ddp, "--trainer.devices", str(world), "--data.batch_size", str(batch // world))


class Group(processes.Group):
    """Processes of `python -m example …`."""

    def __init__(self, world: int, *args: str, **settings: Any) -> None:
        super().__init__(world, *args, **{"package": "example", "path": PATH, **settings})
