"""Says where the `frequency` of a learning rate scheduler does not count optimizer steps, as it is read."""

import sys
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class CheckFrequencies(Callback):
    """Tells how often a scheduler with `interval: step` and a `frequency` really steps (always on).

    Lightning asks after the batch of an optimizer step whether the number of the batch in its epoch is a multiple of
    the frequency. The training stays as Lightning's; only where this differs from counting optimizer steps is it said.
    """

    def __init__(self) -> None:
        self._told = False

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        num_batches = trainer.num_training_batches
        if self._told or batch_idx > 0 or not pl_module.automatic_optimization:
            return
        accumulated = trainer.accumulate_grad_batches
        for config in trainer.lr_scheduler_configs:
            if config.interval != "step" or config.frequency == 1:
                continue
            ends = {i for i in range(1, int(min(num_batches, 10_000)) + 1) if i % accumulated == 0 or i == num_batches}
            num_steps = sum(i % config.frequency == 0 for i in ends)
            if accumulated == 1 and num_steps > 0:
                continue
            self._told = True
            if trainer.is_global_zero:
                name = type(config.scheduler).__name__
                print(
                    f"warning: {name}: Lightning counts its frequency {config.frequency} in the batches of an epoch, "
                    f"not in optimizer steps: it steps {num_steps} times in the {len(ends)} optimizer steps of an "
                    "epoch; to count optimizer steps, use frequency 1 and let the schedule itself count them",
                    file=sys.stderr,
                )
