"""Fine-tuning from the head down: unfreezes the stages of a net one after another."""

from collections import Counter
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from playbook import Task, UserError, finds_unused_parameters
from src.ops.stages import parameter_stages


class Unfreeze(Callback):
    """Trains only the head at first, then one more stage every few epochs (Howard & Ruder 2018, gradual unfreezing).

    By default, stages are the layers of a net in reverse order of registration. A net can define its own stages: its
    method `parameter_stages()` returns lists of parameters, head first. Batch norms whose parameters are frozen keep
    their statistics. The optimizer has all parameters from the start and skips those without a gradient, so a run
    resumes exactly. Parameters that the net itself has frozen are trained as well.

    Args:
        start: epochs in which only the head trains, at least 1.
        every_n_epochs: epochs from one stage to the next, at least 1.

    Raises:
        ValueError: a count is below 1.
        UserError: the net has a single stage, a parameter is in no stage or in several, the task's parameter_groups
            freeze parameters, or DDP expects every gradient.
    """

    def __init__(self, start: int = 1, every_n_epochs: int = 1) -> None:
        for name, count in {"start": start, "every_n_epochs": every_n_epochs}.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1 epoch, got {count}")
        self.start = start
        self.every_n_epochs = every_n_epochs

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if isinstance(pl_module, Task) and any(rule.frozen for rule in pl_module.parameter_rules):
            raise UserError("trainer.callbacks: Unfreeze and frozen parameter_groups conflict, expected one of them")
        self._check_stages(_net_of(pl_module))
        strategy = trainer.strategy
        if isinstance(strategy, DDPStrategy) and not finds_unused_parameters(strategy):
            raise UserError("trainer.callbacks: Unfreeze needs --trainer.strategy ddp_find_unused_parameters_true")
        _net_of(pl_module).requires_grad_(True)  # all of it is for the optimizer, which is made after this

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.apply(_net_of(pl_module), trainer.current_epoch)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.apply(_net_of(pl_module), trainer.current_epoch)

    def apply(self, net: nn.Module, epoch: int) -> None:
        """Enables the stages that this epoch trains, and freezes the others."""
        num_trained = 1 if epoch < self.start else 2 + (epoch - self.start) // self.every_n_epochs
        for number, stage in enumerate(stages_of(net)):
            for parameter in stage:
                parameter.requires_grad = number < num_trained
        net.train()
        for module in net.modules():
            parameters = list(module.parameters(recurse=False))
            if isinstance(module, _BatchNorm) and parameters and not any(p.requires_grad for p in parameters):
                module.eval()

    def _check_stages(self, net: nn.Module) -> None:
        """Checks the stages: parameters of a missing stage would train from the start or never."""
        stages, kind = stages_of(net), type(net).__name__
        if len(stages) < 2:
            raise UserError(f"trainer.callbacks: Unfreeze needs a net of two stages or more; {kind} has {len(stages)}")
        counts = Counter(parameter for stage in stages for parameter in stage)
        wrong = [name for name, parameter in net.named_parameters() if counts[parameter] != 1]
        if wrong:
            raise UserError(
                f"trainer.callbacks: Unfreeze needs every parameter in one stage; {kind}.parameter_stages() has "
                f"{wrong[0]} in {counts[net.get_parameter(wrong[0])]}"
            )


def _net_of(module: LightningModule) -> nn.Module:
    net = getattr(module, "net", None)
    return net if isinstance(net, nn.Module) else module


def stages_of(net: Any) -> list[list[nn.Parameter]]:
    """The net's own `parameter_stages()`, or its layers in the reverse order of registration."""
    return net.parameter_stages() if hasattr(net, "parameter_stages") else parameter_stages(net)
