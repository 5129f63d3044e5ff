"""What only the running training knows of a run, kept for its report."""

import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from playbook.batches import num_samples, split

MOST_POINTS = 400  # of a curve
MOST_ELEMENTS = 2**25  # of the test outputs that are kept, 128 MiB of float32


class Collect(Callback):
    """Notes the rates, the seconds of each epoch, one batch, and the outputs of the test (accompanies every `fit`).

    Attributes:
        rates: step and learning rate of the first group of the first optimizer.
        epochs: seconds of each epoch, validation included.
        batch: a training batch of one sample, on the CPU.
        outputs: the test's outputs, concatenated; empty if test_step returns no dict of tensors of one length.
        fault: why there are none.
    """

    def __init__(self) -> None:
        self.rates: list[tuple[int, float]] = []
        self.epochs: list[float] = []
        self.batch: Any = None
        self.outputs: dict[str, Tensor] = {}
        self.fault = ""
        self._parts: list[dict[str, Tensor]] = []
        self._num_elements = 0
        self._every = 1
        self._started_at = 0.0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._started_at = time.monotonic()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.batch is None:
            self.batch = _copied(split(batch, max(1, num_samples(batch)))[0][1])
        if trainer.global_step % self._every == 0 and trainer.optimizers:
            self._note_rate(trainer)

    def _note_rate(self, trainer: Trainer) -> None:
        groups = trainer.optimizers[0].param_groups
        if self.rates and self.rates[-1][0] == trainer.global_step:  # a batch of an accumulated step
            return
        self.rates.append((trainer.global_step, float(groups[0]["lr"]) if groups else 0.0))
        if len(self.rates) >= 2 * MOST_POINTS:
            self.rates = self.rates[::2]
            self._every *= 2

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.epochs.append(time.monotonic() - self._started_at)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._parts, self._num_elements, self.outputs, self.fault = [], 0, {}, ""

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if self.fault:
            return
        values = (
            {name: value for name, value in outputs.items() if isinstance(value, Tensor)} if _is_named(outputs) else {}
        )
        if not values or len({len(value) if value.ndim else -1 for value in values.values()}) != 1:
            self._give_up("test_step returns no tensors by name with an entry a sample")
        elif dataloader_idx:
            self._give_up("there are several test sets")
        else:
            self._num_elements += sum(value.numel() for value in values.values())
            if self._num_elements > MOST_ELEMENTS:
                self._give_up(f"the outputs have more than {MOST_ELEMENTS:,} numbers")
            else:
                self._parts.append({name: value.detach().cpu() for name, value in values.items()})

    def _give_up(self, fault: str) -> None:
        self._parts, self.fault = [], fault

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._parts and all(part.keys() == self._parts[0].keys() for part in self._parts):
            self.outputs = {name: torch.cat([part[name] for part in self._parts]) for name in self._parts[0]}
        self._parts = []


def _is_named(outputs: Any) -> bool:
    return isinstance(outputs, dict) and bool(outputs)


def _copied(value: Any) -> Any:
    """The same with every tensor on the CPU, so that nothing larger is kept alive."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {name: _copied(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_copied(entry) for entry in value)
    return value
