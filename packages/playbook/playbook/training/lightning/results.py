"""What `self.log` has collected."""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Trainer


def has_validated(trainer: Trainer) -> bool:
    """Whether a validation, other than the sanity check, ran in this training."""
    return trainer.fit_loop.epoch_loop.val_loop._has_run


def logged_names(trainer: Trainer) -> set[str]:
    """Names that self.log was called with in the running epoch, with the endings that Lightning adds to them."""
    names: set[str] = set()
    for metric in (trainer._results or {}).values():
        name, has_endings = metric.meta.name, metric.meta.on_step and metric.meta.on_epoch
        loader = metric.meta.dataloader_idx if metric.meta.add_dataloader_idx else None
        end = "" if loader is None else f"/dataloader_idx_{loader}"
        names |= {f"{name}{end}", f"{name}_step{end}", f"{name}_epoch{end}"} if has_endings else {f"{name}{end}"}
    return names


def validation_names(trainer: Trainer) -> set[str]:
    """Names that self.log was called with in the validations of a training."""
    return {metric.meta.name for metric in trainer.fit_loop.epoch_loop.val_loop._results.values()}


def logged_values(trainer: Trainer) -> Any:
    """By key, the metric objects in which self.log collects the values of the training epoch."""
    return trainer.fit_loop.epoch_loop._results


def step_values(trainer: Trainer) -> dict[str, Any]:
    """By name, the newest values of this epoch that self.log collects for loggers with on_step."""
    return logged_values(trainer).metrics(on_step=True)["log"]


def last_logged_step(trainer: Trainer) -> int:
    """At the end of an epoch: the number that loggers give to its last step."""
    return trainer.fit_loop.epoch_loop._batches_that_stepped - 1


def logged_step(trainer: Trainer) -> int:
    """In on_train_start and during a training batch: the number that loggers give to its step."""
    return trainer.fit_loop.epoch_loop._batches_that_stepped


def epoch_sums(trainer: Trainer) -> dict[str, dict[str, Any]]:
    """Sums over the training epoch so far of what self.log collects with on_epoch; checkpoints lack them."""
    return {
        key: {"value": metric.value, "size": getattr(metric, "cumulated_batch_size", None)}
        for key, metric in logged_values(trainer).items()
        if metric.is_tensor and metric.meta.on_epoch
    }


def add_epoch_sums(trainer: Trainer, sums: dict[str, dict[str, Any]]) -> None:
    """Adds former `epoch_sums` to those of self.log, and removes from `sums` what was added.

    Lightning creates a sum at the first call of self.log, so this is asked after every batch until all are added.
    """
    results: Mapping[str, Any] = logged_values(trainer) if sums else {}
    for key, metric in results.items():
        former = sums.pop(key, None)
        if former is None:
            continue
        value = former["value"].to(metric.value.device)
        is_extreme = metric.meta.is_max_reduction or metric.meta.is_min_reduction
        metric.value = metric.meta.reduce_fx(metric.value, value) if is_extreme else metric.value + value
        if former["size"] is not None:
            metric.cumulated_batch_size = metric.cumulated_batch_size + former["size"]
