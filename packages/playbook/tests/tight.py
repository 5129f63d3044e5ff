"""A callback that runs out of memory, in a file that every process finds by the same name."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn


class _FailsGoingBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, error: str) -> Tensor:
        ctx.error = error
        return output.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise torch.OutOfMemoryError(ctx.error)


class Tight(Callback):
    """Has memory for `limit` samples: a larger batch fails in the first layer, forward or backward.

    Args:
        limit: samples that fit.
        amid: whether it is the backward pass that fails, when the last layer's gradients are there already.
        first_batch: before which there is memory enough.
        error: what it says.
    """

    def __init__(
        self, limit: int, amid: bool = False, first_batch: int = 0, error: str = "CUDA out of memory. A."
    ) -> None:
        self.limit, self.amid, self.first_batch, self.error = limit, amid, first_batch, error

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.trainer = trainer
        layer = next(module for module in pl_module.modules() if isinstance(module, nn.Linear))
        layer.register_forward_hook(self.use)

    def use(self, layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor | None:
        fits = len(inputs[0]) <= self.limit or self.trainer.fit_loop.batch_idx < self.first_batch
        if fits or not layer.training:
            return None
        if self.amid:
            return _FailsGoingBack.apply(output, self.error)
        raise (torch.OutOfMemoryError if "CUDA" in self.error else RuntimeError)(self.error)
