"""Fine-tuning from the head down: the stages of a net begin to train one after another."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import nn

from playbook import UserError, finds_unused_parameters


class Unfreeze(Callback):
    """Trains the head alone at first, then one more stage every few epochs (Howard & Ruder 2018, gradual unfreezing).

    Stages are lists of parameters from the net's `stages()`, head first, as TorchvisionClassifier has it. The optimizer
    has all parameters from the start, and passes over those without a gradient, so a run continues exactly. It
    overrides the net's own `freeze`.

    Args:
        start: epochs of which only the head trains, at least 1.
        every_n_epochs: epochs from one stage to the next, at least 1.

    Raises:
        ValueError: a count below 1.
        UserError: a net without stages, or a DDP that waits for every gradient.
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
        net = getattr(pl_module, "net", None)
        if not hasattr(net, "stages"):
            raise UserError(f"trainer.callbacks: Unfreeze needs a net with stages(), {type(net).__name__} has none")
        strategy = trainer.strategy
        if isinstance(strategy, DDPStrategy) and not finds_unused_parameters(strategy):
            raise UserError("trainer.callbacks: Unfreeze needs --trainer.strategy ddp_find_unused_parameters_true")
        pl_module.net.requires_grad_(True)  # all of it is for the optimizer, which is made after this

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._apply(pl_module, trainer.current_epoch)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._apply(pl_module, trainer.current_epoch)

    def _apply(self, pl_module: Any, epoch: int) -> None:
        stages: list[list[nn.Parameter]] = pl_module.net.stages()
        num_trained = 1 if epoch < self.start else 2 + (epoch - self.start) // self.every_n_epochs
        for number, stage in enumerate(stages):
            for parameter in stage:
                parameter.requires_grad = number < num_trained
        pl_module.net.train()  # a frozen batch norm keeps its statistics, one that trains does not
