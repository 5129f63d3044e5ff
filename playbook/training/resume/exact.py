"""What a checkpoint needs beside Lightning's own for training to continue bitwise."""

import os
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import move_data_to_device
from torchmetrics import Metric

from playbook.data.base import Data
from playbook.processes import gathered, shard_of
from playbook.seeding import derived_seed, seed_generators
from playbook.training.lightning import count_validation_from_its_start, set_batch
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.resume.third_party import make_replayable

VALIDATION, EPOCH = -1, -2  # stand for the batch in the seed of what is no training step


class ExactResume(Callback):
    """Makes a step's randomness a function of (seed, rank, epoch, batch), keeps half-filled metrics (always on).

    No state of a generator has to be stored, and the weights come out bitwise the same from every step, with and
    without loader workers (tests/callbacks/test_resume.py). A data module of another kind has its DataLoader made to
    follow the same rule as far as it lets itself.

    Args:
        checkpoint: saves before any other callback has changed its state at the start of a batch or an epoch.
    """

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self.checkpoint = checkpoint
        self._saved: dict[str, Any] = {}  # of the checkpoint that is continued, until it is taken up
        self._filled: set[str] | None = None  # metrics that were in use when the validation began

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loop = trainer.fit_loop
        data = getattr(trainer, "datamodule", None)
        progress: Any = loop.epoch_progress.current
        if loop._restarting and progress.ready == progress.processed:
            # saved between two epochs; with max_steps, Lightning would go back into the one that is over, in vain
            for part in (loop, loop.epoch_loop, loop.epoch_loop.val_loop, loop.epoch_loop.automatic_optimization):
                part._restarting = False
            loop.epoch_loop.reset_restart_stage()
        if "PL_GLOBAL_SEED" not in os.environ:
            if trainer.global_step and trainer.is_global_zero:
                print("continuing, but not exactly: seed_everything is false, so random numbers are new", flush=True)
        elif not isinstance(data, Data):
            in_epoch = progress.started > progress.processed
            make_replayable(trainer, loop.epoch_loop.batch_progress.current.ready if in_epoch else 0)
        if isinstance(data, Data) and data.moved_to is not None:
            set_batch(trainer, data.moved_to)
            data.moved_to = None
        known = trainer._logger_connector._callback_metrics
        for name, value in self._saved.pop("callback_metrics", {}).items():
            known[name] = torch.tensor(value, device=pl_module.device)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.checkpoint is not None:
            self.checkpoint.before_epoch(trainer)
        self._seed(trainer, EPOCH)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        # Lightning leaves the flag up for the whole resumed epoch, and then steps no scheduler at its end
        trainer.fit_loop._restarting = False
        if self.checkpoint is not None and batch_idx > 0:
            self.checkpoint.before_batch(trainer)
        self._seed(trainer, batch_idx)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._add_logged(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._add_logged(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            trainer.fit_loop._restarting = False  # as above, where the run was stopped amid the validation of an epoch
            count_validation_from_its_start(trainer)
            self._filled = {name for name, metric in _metrics(pl_module) if metric._update_count}
            self._seed(trainer, VALIDATION)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._filled = None

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        metrics = {
            name: {"state": metric.metric_state, "updates": metric._update_count}
            for name, metric in _metrics(pl_module)
            if self._filled is None or name in self._filled  # a validation that was cut off begins anew
        }
        logged = {
            key: {"value": metric.value, "size": getattr(metric, "cumulated_batch_size", None)}
            for key, metric in trainer.fit_loop.epoch_loop._results.items()
            if metric.is_tensor and metric.meta.on_epoch
        }
        state = move_data_to_device({"metrics": metrics, "logged": logged}, torch.device("cpu"))
        checkpoint["metric_states"] = gathered(trainer, state)  # by rank
        checkpoint["callback_metrics"] = {name: float(value) for name, value in trainer.callback_metrics.items()}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn != "fit":
            return
        self._saved = {"callback_metrics": checkpoint.get("callback_metrics", {})}
        states = checkpoint.get("metric_states", [])
        if len(states) != trainer.world_size:
            if states and trainer.is_global_zero:
                print(
                    f"the checkpoint is of {len(states)} processes, this run has {trainer.world_size}: the metrics of "
                    "the epoch it was saved in count what comes from here on",
                    flush=True,
                )
            return
        state = move_data_to_device(states[trainer.global_rank], pl_module.device)
        self._saved["logged"] = state["logged"]
        for name, metric in _metrics(pl_module):
            if name in state["metrics"]:
                for key, value in state["metrics"][name]["state"].items():
                    setattr(metric, key, value)
                metric._update_count = state["metrics"][name]["updates"]

    def _seed(self, trainer: Trainer, batch: int) -> None:
        if "PL_GLOBAL_SEED" in os.environ:  # seed_everything: false asks for other numbers every time
            seed = int(os.environ["PL_GLOBAL_SEED"])
            seed_generators(derived_seed(seed, shard_of(trainer)[0], trainer.current_epoch, batch))

    def _add_logged(self, trainer: Trainer) -> None:
        """Adds what self.log had summed up before the checkpoint; Lightning makes the sums at the first call of it."""
        saved = self._saved.get("logged", {})
        for key, metric in trainer.fit_loop.epoch_loop._results.items() if saved else []:
            former = saved.pop(key, None)
            if former is None:
                continue
            if metric.meta.is_max_reduction or metric.meta.is_min_reduction:
                metric.value = metric.meta.reduce_fx(metric.value, former["value"].to(metric.value.device))
            else:
                metric.value = metric.value + former["value"].to(metric.value.device)
            if former["size"] is not None:
                metric.cumulated_batch_size = metric.cumulated_batch_size + former["size"]


def _metrics(module: LightningModule) -> list[tuple[str, Metric]]:
    return [(name, metric) for name, metric in module.named_modules() if isinstance(metric, Metric)]
