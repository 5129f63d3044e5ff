"""Adds to Lightning's checkpoints what training needs to resume bitwise."""

import os
from copy import deepcopy
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import move_data_to_device
from torchmetrics import Metric

from playbook.metrics import BatchedMetrics
from playbook.processes import gathered, shard_of
from playbook.seeding import derived_seed, seed_generators
from playbook.training.lightning.position import (
    count_validation_from_its_start,
    cut_epoch,
    position,
    set_batch,
)
from playbook.training.lightning.restart import end_restart, end_restart_between_epochs
from playbook.training.lightning.results import add_epoch_sums, epoch_sums
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.resume.third_party import make_replayable

VALIDATION, EPOCH = -1, -2  # stand for the batch in the seed of what is no training step


class ExactResume(Callback):
    """Makes a step's randomness a function of (seed, rank, epoch, batch), and saves half-filled metrics (always on).

    No generator's state has to be stored, and the weights are bitwise the same from every step, with and without
    loader workers (tests/training/resume/test_exact.py). Third-party DataLoaders are adapted to the
    same rule; if one cannot be, a one-line message says why.

    Args:
        checkpoint: callback that is asked to save at the start of a batch or an epoch, before any other callback
            changes its state.
    """

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self.checkpoint = checkpoint
        self._saved: dict[str, Any] = {}  # of the checkpoint that is continued, until it is taken up
        self._filled: set[str] | None = None  # metrics that were in use when the validation began
        self._seed_and_shard: tuple[int, int] | None = None  # None where every run is to have other random numbers

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        data: Any = getattr(trainer, "datamodule", None)
        is_exact = getattr(data, "resumes_exactly", False)  # as Data says it of itself
        end_restart_between_epochs(trainer)
        seed = os.environ.get("PL_GLOBAL_SEED")  # set unless seed_everything is false
        self._seed_and_shard = (int(seed), shard_of(trainer)[0]) if seed is not None else None
        if seed is None:
            if trainer.global_step and trainer.is_global_zero:
                print("resuming, but not exactly: seed_everything is false, so random numbers differ", flush=True)
        elif not is_exact:
            make_replayable(trainer, position(trainer)[1])
        if is_exact and getattr(data, "moved_to", None) is not None:
            set_batch(trainer, data.moved_to)
            data.moved_to = None
        known_metrics = trainer.callback_metrics
        for name, value in self._saved.pop("callback_metrics", {}).items():
            known_metrics[name] = torch.tensor(value, device=pl_module.device)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.checkpoint is not None:
            self.checkpoint.before_epoch(trainer)
        self._seed(trainer, EPOCH)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        end_restart(trainer)
        if self.checkpoint is not None and batch_idx > 0:
            self.checkpoint.before_batch(trainer)
        self._seed(trainer, batch_idx)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        add_epoch_sums(trainer, self._saved.get("logged", {}))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        add_epoch_sums(trainer, self._saved.get("logged", {}))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            end_restart(trainer)  # as above, where the run was stopped during the validation of an epoch
            count_validation_from_its_start(trainer)
            for _, collection in _collections(pl_module):
                collection.flush()
            self._filled = {name for name, metric in _metrics(pl_module) if metric.update_called}
            self._seed(trainer, VALIDATION)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._filled = None

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        metrics = {
            name: {"state": metric.metric_state, "updates": metric.update_count}
            for name, metric in _metrics(pl_module)
            if self._filled is None or name in self._filled  # a validation that was cut off begins anew
        }
        pending = {name: collection.pending for name, collection in _collections(pl_module) if self._filled is None}
        state = {"metrics": metrics, "pending": pending, "logged": epoch_sums(trainer)}
        state = move_data_to_device(state, torch.device("cpu"))
        checkpoint["metric_states"] = gathered(trainer, state)  # by rank
        checkpoint["callback_metrics"] = {name: float(value) for name, value in trainer.callback_metrics.items()}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn != "fit":
            return
        if (cut := cut_epoch(checkpoint)) is not None and trainer.is_global_zero:
            print(
                f"epoch {cut[0]} ended after {cut[1]} batches: its others are left out, epoch {cut[0] + 1} is next",
                flush=True,
            )
        self._saved = {"callback_metrics": checkpoint.get("callback_metrics", {})}
        states = checkpoint.get("metric_states", [])
        if len(states) != trainer.world_size:
            if states and trainer.is_global_zero:
                print(
                    f"the checkpoint is from {len(states)} processes, this run has {trainer.world_size}: metrics of "
                    "this epoch only include the batches from here on",
                    flush=True,
                )
            return
        state = move_data_to_device(states[trainer.global_rank], pl_module.device)
        self._saved["logged"] = state["logged"]
        for name, collection in _collections(pl_module):
            collection.wait_for(state.get("pending", {}).get(name, []))
        for name, metric in _metrics(pl_module):
            if name in state["metrics"]:
                for key, value in state["metrics"][name]["state"].items():
                    # copies: metrics of a collection may have shared a tensor, and each adds the next batch to its own
                    setattr(metric, key, deepcopy(value))
                # private to torchmetrics, which has no setter: compute() would warn that there was no update
                metric._update_count = state["metrics"][name]["updates"]

    def _seed(self, trainer: Trainer, batch: int) -> None:
        if self._seed_and_shard is not None:
            seed_generators(derived_seed(*self._seed_and_shard, trainer.current_epoch, batch))


def _metrics(module: LightningModule) -> list[tuple[str, Metric]]:
    return [(name, metric) for name, metric in module.named_modules() if isinstance(metric, Metric)]


def _collections(module: LightningModule) -> list[tuple[str, BatchedMetrics]]:
    return [(name, part) for name, part in module.named_modules() if isinstance(part, BatchedMetrics)]
