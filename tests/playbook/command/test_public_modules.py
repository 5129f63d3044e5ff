"""Modules as they are published: their own import of Lightning, and base classes that save their arguments."""

import pickle
from copy import deepcopy
from pathlib import Path

import pytest
import torch

from playbook.command.hyperparameters import Hyperparameters
from tests.playbook.running import Cli

MODULE = """
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


def test_arguments_of_bases_are_copied_along() -> None:
    values = Hyperparameters({"width": 4}, {"lr": 0.5})
    for copied in (deepcopy(values), pickle.loads(pickle.dumps(values))):
        assert (copied.width, copied.lr, copied.get("lr"), copied.get("other")) == (4, 0.5, 0.5, None)
        assert "lr" in copied
        assert set(copied.keys()) == {"width", "lr"}
        assert dict(copied) == {"width": 4}
        with pytest.raises(AttributeError, match="other"):
            _ = copied.other
