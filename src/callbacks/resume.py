"""What a checkpoint needs beside Lightning's own for training to continue bitwise."""

import os
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torchmetrics import Metric

from src.data.base import derived_seed, seed_generators


class ExactResume(Callback):
    """Makes a step's randomness a function of (seed, rank, epoch, batch), keeps half-filled metrics (always on).

    No state of a generator has to be stored, and the weights come out bitwise the same from every step, with and
    without loader workers (tests/callbacks/test_resume.py).
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loop = trainer.fit_loop
        progress: Any = loop.epoch_progress.current
        if loop._restarting and progress.ready == progress.processed:
            # saved between two epochs; with max_steps, Lightning would go back into the one that is over, in vain
            for part in (loop, loop.epoch_loop, loop.epoch_loop.val_loop, loop.epoch_loop.automatic_optimization):
                part._restarting = False
            loop.epoch_loop.reset_restart_stage()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        # Lightning leaves the flag up for the whole resumed epoch, and then steps no scheduler at its end
        trainer.fit_loop._restarting = False
        if "PL_GLOBAL_SEED" not in os.environ:  # seed_everything: false asks for other numbers every time
            return
        seed = int(os.environ["PL_GLOBAL_SEED"])
        seed_generators(derived_seed(seed, trainer.global_rank, trainer.current_epoch, batch_idx))

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["metric_states"] = {
            name: {"state": metric.metric_state, "updates": metric._update_count}
            for name, metric in pl_module.named_modules()
            if isinstance(metric, Metric)
        }

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        saved = checkpoint.get("metric_states", {})
        for name, metric in pl_module.named_modules():
            if isinstance(metric, Metric) and name in saved and trainer.state.fn == "fit":
                for key, value in saved[name]["state"].items():
                    setattr(metric, key, value)
                metric._update_count = saved[name]["updates"]
