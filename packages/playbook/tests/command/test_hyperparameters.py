"""What `save_hyperparameters()` keeps of a module that the command line builds is what it keeps in a script."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn

from playbook.command.hyperparameters import arguments_as_given
from playbook.training.hyperparameters import Hyperparameters
from playbook.training.lightning.settings import configured_by

OPTIMIZER = partial(torch.optim.SGD, lr=0.5)


@dataclass
class Options:
    lr: float = 0.01


class Base(LightningModule):
    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(self.hparams["width"], 1)


class Derived(Base):
    """Saves its own arguments after those of its base, and makes another module."""

    def __init__(self, optimizer: Any, options: Options = Options(), width: int = 3, **others: Any) -> None:  # noqa: B008
        super().__init__(width, rate=0.5)
        self.save_hyperparameters(ignore=["width"], logger=False)
        self.inner = Base(7, rate=0.25)


class Listed(LightningModule):
    def __init__(self, optimizer: Any, width: int = 3) -> None:
        LightningModule.__init__(self)
        width = width or 5
        self.save_hyperparameters("width", "optimizer")


class Mapping(LightningModule):
    def __init__(self, settings: dict[str, Any], optimizer: Any = None) -> None:
        super().__init__()
        self.save_hyperparameters(settings)


def build(cls: type[LightningModule], configured: dict[str, Any], **arguments: Any) -> Any:
    with arguments_as_given(cls), configured_by(cls.__name__, configured):
        return cls(**arguments)


def test_objects_and_defaults_are_as_they_were_given() -> None:
    configured = {"optimizer": {"class_path": "SGD"}, "options": {"lr": 0.01}, "width": 3, "extra": 1}
    module = build(Derived, configured, optimizer=OPTIMIZER, extra=1)
    assert module.hparams.optimizer is OPTIMIZER
    assert module.hparams.options == Options()
    assert (module.hparams.rate, module.hparams.extra) == (0.5, 1)
    assert "width" not in module.hparams  # ignored
    del configured["width"]
    assert {**module.hparams.plain(), "_instantiator": ""} == {
        "_class_path": "Derived",
        "_instantiator": "",
        **configured,
    }
    assert module.hparams_initial["optimizer"] == {"class_path": "SGD"}


def test_a_module_that_the_constructor_makes_has_its_own() -> None:
    module = build(Derived, {"optimizer": "SGD", "width": 3}, optimizer=OPTIMIZER)
    assert dict(module.inner.hparams) == {"width": 7, "rate": 0.25}
    assert module.inner.layer.in_features == 7
    assert module.layer.in_features == 3


def test_a_variable_counts_as_it_is_when_it_is_saved() -> None:
    module = build(Listed, {"optimizer": "SGD", "width": 0}, optimizer=OPTIMIZER, width=0)
    assert dict(module.hparams) == {"width": 5, "optimizer": OPTIMIZER}
    assert module.hparams.plain() == {"width": 5, "optimizer": "SGD"}


@pytest.mark.parametrize("settings", [{"optimizer": "mine", "depth": 2}])
def test_a_mapping_is_saved_as_it_is(settings: dict[str, Any]) -> None:
    module = build(Mapping, {"settings": settings, "optimizer": None}, settings=settings, optimizer=OPTIMIZER)
    assert dict(module.hparams) == settings
    assert module._hparams_name == "settings"  # by which load_from_checkpoint passes it


def test_in_a_script_nothing_changes() -> None:
    with arguments_as_given(Base):
        module = Base(2, rate=0.5)
    assert not isinstance(module.hparams, Hyperparameters)
    assert dict(module.hparams) == {"width": 2, "rate": 0.5}
