"""The loop over the batches of an epoch, without calls of hooks that do nothing."""

from collections import OrderedDict
from typing import Any

from lightning.fabric.utilities import move_data_to_device, rank_zero_warn
from lightning.pytorch import Trainer
from lightning.pytorch.loops.fetchers import _DataLoaderIterDataFetcher
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor

from playbook.training.lightning.hooks import StepHooks, has_plain_steps


class EpochLoop(_TrainingEpochLoop):
    """Lightning's loop, with a shorter way through plain steps (see `has_plain_steps`); others take Lightning's own.

    Counters, hooks, their order and what they see are the same. Lightning takes most of what a small step lasts beyond
    its computation for hooks that nothing overrides (benchmarks/step.py).
    """

    quiet_profilers: tuple[type, ...] = ()  # classes of profilers that need not see every hook
    hooks: StepHooks | None = None  # of plain steps; None where Lightning's own way is taken
    takes_index = True  # training_step takes batch_idx
    validates = True  # at the end of this epoch, or within it

    def on_run_start(self, data_fetcher: Any) -> None:
        super().on_run_start(data_fetcher)
        is_plain = not isinstance(data_fetcher, _DataLoaderIterDataFetcher)
        is_plain = is_plain and has_plain_steps(self.trainer, self.quiet_profilers)
        self.hooks = StepHooks(self.trainer) if is_plain else None
        self.takes_index = is_param_in_hook_signature(
            self.trainer.lightning_module.training_step, "batch_idx", min_args=2
        )
        self.validates = super()._should_check_val_epoch()

    def _should_check_val_epoch(self) -> bool:
        return self.validates if self.hooks is not None else super()._should_check_val_epoch()

    def advance(self, data_fetcher: Any) -> None:
        """Runs a training batch.

        Raises:
            StopIteration: on_train_batch_start returned -1, which ends the epoch.
        """
        hooks, trainer = self.hooks, self.trainer
        if hooks is None or self.restarting or not trainer.lightning_module.automatic_optimization:
            return super().advance(data_fetcher)
        if hooks.callbacks != trainer.callbacks:  # type: ignore[attr-defined]  # one has been added within the epoch
            hooks = self.hooks = StepHooks(trainer)
        if self.val_loop.restarting:
            self.val_loop.restarting = False
        batch, _, _ = next(data_fetcher)
        batch_idx = self.batch_idx + 1
        progress = self.batch_progress
        progress.is_last_batch = data_fetcher.done
        batch = self._moved(hooks, batch)
        progress.increment_ready()
        self._begin_results(batch)
        output: Any = None
        ends_epoch = False
        if batch is None:
            rank_zero_warn("train_dataloader yielded None. If this was on purpose, ignore this warning...")
        else:
            ends_epoch = hooks("on_train_batch_start", batch, batch_idx) == -1
            if ends_epoch:
                progress.increment_by(0, is_last_batch=True)
            else:
                progress.increment_started()
                output = self._optimize(batch, batch_idx)
        progress.increment_processed()
        if trainer.lr_scheduler_configs:
            self.update_lr_schedulers("step", update_plateau_schedulers=False)
            if self._num_ready_batches_reached():
                self.update_lr_schedulers("epoch", update_plateau_schedulers=False)
        if ends_epoch:
            raise StopIteration
        hooks("on_train_batch_end", output, batch, batch_idx)
        self._end_results()
        progress.increment_completed()
        connector = trainer._logger_connector
        if connector.should_update_logs or trainer.fast_dev_run:  # type: ignore[attr-defined]  # set by a connector
            connector.update_train_step_metrics()
        return None

    def _moved(self, hooks: StepHooks, batch: Any) -> Any:
        if hooks.converts:
            batch = hooks.precision.convert_input(batch)
        device = self.trainer.strategy.root_device
        if isinstance(batch, list | tuple) and all(isinstance(x, Tensor) and x.device == device for x in batch):
            return batch
        with hooks.in_strategy("batch_to_device"):
            return move_data_to_device(batch, device)

    def _optimize(self, batch: Any, batch_idx: int) -> Any:
        arguments: OrderedDict[str, Any] = OrderedDict(batch=batch)
        if self.takes_index:
            arguments["batch_idx"] = batch_idx
        with self.trainer.profiler.profile("run_training_batch"):  # type: ignore[attr-defined]  # set by a connector
            return self.automatic_optimization.run(self.trainer.optimizers[0], batch_idx, arguments)

    def _begin_results(self, batch: Any) -> None:
        """As Lightning's connector, which looks for these results four times a step."""
        connector, results = self.trainer._logger_connector, self._results
        connector._first_loop_iter = connector._first_loop_iter is None
        results.batch, results.batch_size, results.dataloader_idx = batch, None, None

    def _end_results(self) -> None:
        connector, results = self.trainer._logger_connector, self._results
        if results:
            metrics = results.metrics(on_step=True)
            connector._progress_bar_metrics.update(metrics["pbar"])
            connector._callback_metrics.update(metrics["callback"])
            connector._logged_metrics.update(metrics["log"])
        results.batch = results.batch_size = None


def shorten_steps(trainer: Trainer, quiet_profilers: tuple[type, ...] = ()) -> None:
    """Before a fit: gives a trainer this loop over the batches of an epoch.

    Args:
        trainer: newly made.
        quiet_profilers: classes of profilers that need not see the hooks that nothing overrides.
    """
    former = trainer.fit_loop.epoch_loop
    loop = EpochLoop(trainer, min_steps=former.min_steps, max_steps=former.max_steps)
    loop.quiet_profilers = quiet_profilers
    trainer.fit_loop.epoch_loop = loop
