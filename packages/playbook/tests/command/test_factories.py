"""Which arguments of a module take a class in place of an optimizer or a schedule."""

import inspect
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from jsonargparse import ArgumentParser
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import nn

from playbook.command import parser
from playbook.command.factories import factory_type

UNTYPED = inspect.Parameter.empty
LR_SCHEDULER: ModuleType = torch.optim.lr_scheduler


class Module(LightningModule):
    """As in lightning-hydra-template: what an optimizer is built by is annotated as an optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer, scheduler: LR_SCHEDULER = None, name_of_optim=None) -> None:  # type: ignore[valid-type]
        super().__init__()
        self.save_hyperparameters()
        self.optimizer, self.scheduler = optimizer, scheduler

    def configure_optimizers(self) -> Any:
        optimizer = self.hparams["optimizer"](params=self.parameters())
        return [optimizer], [self.scheduler(optimizer)]


class Named(LightningModule):
    def __init__(self, optimizer) -> None:
        super().__init__()
        self.optimizer = getattr(torch.optim, optimizer)


@pytest.mark.parametrize(
    ("name", "annotation", "expected"),
    [
        ("optimizer", torch.optim.Optimizer, OptimizerCallable),
        ("rule", torch.optim.Adam, OptimizerCallable),
        ("decay", torch.optim.lr_scheduler.LRScheduler, LRSchedulerCallable),
        ("scheduler", LR_SCHEDULER, LRSchedulerCallable | None),
        ("optimizer", partial, OptimizerCallable),
        ("optimizer", partial[torch.optim.Optimizer], OptimizerCallable),
        ("lr_scheduler", Callable, LRSchedulerCallable),
        ("optimizer", UNTYPED, OptimizerCallable),
        ("scheduler", Any, LRSchedulerCallable),
        ("optimizer", torch.optim.Optimizer | None, OptimizerCallable | None),
        ("optimizer", str, str),
        ("name_of_optim", UNTYPED, UNTYPED),  # nothing calls it
        ("loss", Callable, Callable),
        ("net", nn.Module, nn.Module),
    ],
)
def test_type_of_an_argument(name: str, annotation: Any, expected: Any) -> None:
    assert factory_type(Module, name, annotation) == expected


def test_what_is_only_named_stays_text() -> None:
    assert factory_type(Named, "optimizer", UNTYPED) is UNTYPED
    assert factory_type(torch.optim.lr_scheduler.StepLR, "optimizer", torch.optim.Optimizer) is torch.optim.Optimizer


def test_an_optimizer_is_configured_by_its_class() -> None:
    parser.prepare()
    options = ArgumentParser(exit_on_error=False)
    options.add_subclass_arguments(LightningModule, "model")
    class_path = f"{Module.__module__}.Module"
    args = ["--model", class_path, "--model.optimizer", "SGD", "--model.optimizer.lr", "0.5"]
    args += ["--model.scheduler", "torch.optim.lr_scheduler.StepLR", "--model.scheduler.step_size", "3"]
    built: Any = options.instantiate_classes(options.parse_args(args))
    module = built.model
    assert isinstance(module.optimizer, partial)
    assert module.optimizer.func is torch.optim.SGD
    module.net = nn.Linear(1, 1)
    (optimizer,), (schedule,) = module.configure_optimizers()
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert schedule.step_size == 3
