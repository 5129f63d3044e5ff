"""Hyperparameters of the command line: arguments as they were given, of which checkpoints keep plain values."""

import pickle
from copy import copy, deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn

from playbook.training.hyperparameters import Hyperparameters, plain_hyperparameters
from playbook.training.lightning.settings import set_hyperparameters
from playbook.training.trainer import Trainer

NET = nn.Linear(2, 1)
OPTIMIZER = partial(torch.optim.SGD, lr=0.5)
CONFIGURED = {"_class_path": "my.Module", "net": {"class_path": "Linear"}, "optimizer": "SGD", "width": 4}


def values() -> Hyperparameters:
    return Hyperparameters({"net": NET, "optimizer": OPTIMIZER, "width": 4, "rate": 0.5}, dict(CONFIGURED))


def test_a_checkpoint_keeps_what_was_configured() -> None:
    hparams = values()
    assert hparams.optimizer is OPTIMIZER
    assert hparams["rate"] == 0.5  # of a base class
    assert {**hparams}.keys() == {"net", "optimizer", "width", "rate"}
    assert hparams.plain() == CONFIGURED


def test_a_checkpoint_keeps_what_the_module_has_changed() -> None:
    hparams = values()
    hparams.width = 8
    hparams["depth"] = 2
    del hparams["net"]
    expected = {"_class_path": "my.Module", "optimizer": "SGD", "width": 8, "depth": 2}
    assert hparams.plain() == expected


@pytest.mark.parametrize("duplicate", [copy, deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_know_as_much(duplicate: Any) -> None:
    copied = duplicate(values())
    assert (copied.width, copied.rate, copied.get("other")) == (4, 0.5, None)
    assert copied.plain() == CONFIGURED
    with pytest.raises(AttributeError, match="other"):
        _ = copied.other


def test_a_copied_module_keeps_its_net_and_shares_its_factories() -> None:
    module = Module()
    copied = deepcopy(module)
    assert copied.hparams["net"] is copied.net
    assert copied.net is not module.net
    assert copied.hparams["optimizer"] is module.hparams["optimizer"]


class Module(LightningModule):
    """Built as by the command line; its hook adds one hyperparameter to checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(2, 1)
        made = Hyperparameters(
            {"net": self.net, "optimizer": lambda parameters: OPTIMIZER(list(parameters)), "rate": 0.5}, CONFIGURED
        )
        set_hyperparameters(self, made, {})

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.net(batch).sum()

    def configure_optimizers(self) -> Any:
        return self.hparams["optimizer"](self.parameters())

    def train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(torch.ones(2, 2))  # type: ignore[arg-type]  # it has a length

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["hyper_parameters"]["note"] = "mine"


@pytest.mark.parametrize("weights_only", [False, True])
def test_every_checkpoint_of_the_trainer_is_plain(tmp_path: Path, weights_only: bool) -> None:
    options = {"max_steps": 1, "accelerator": "cpu", "enable_progress_bar": False, "enable_checkpointing": False}
    trainer = Trainer(run_dir=False, **options)
    module = Module()  # its factory cannot be pickled
    trainer.fit(module)
    trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=weights_only)
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)["hyper_parameters"]
    assert saved == {"_class_path": "my.Module", "net": {"class_path": "Linear"}, "optimizer": "SGD", "note": "mine"}
    assert callable(module.hparams["optimizer"])


def test_those_of_python_are_as_they_are() -> None:
    module = LightningModule()
    module.save_hyperparameters({"width": 4})
    assert plain_hyperparameters(module) == {"width": 4}
