"""Applies, prints and records options that the user changes when resuming a run."""

from collections.abc import Iterator
from typing import Any

import yaml
from lightning.pytorch import Callback, LightningModule, Trainer

from playbook.errors import UserError
from playbook.training.resume.options import Change, changed_options
from playbook.training.resume.settings import Settings, changed_settings

RAW = "current_model_state"  # the weights that train, in a checkpoint whose state_dict is their average


class Changes(Callback):
    """Gives options of a resumed run precedence over the checkpoint, and prints a line for each (always on).

    Lightning restores rates, weight decay and schedules from the checkpoint, whatever the current configuration says.
    Here, a setting that differs from the one that the checkpoint's run was started with takes effect; a changed
    schedule continues at the current step as if it had been used from the beginning. All other settings are restored.
    metrics.json lists all changes under `changes`, with the number of optimizer steps before them.
    """

    def __init__(self) -> None:
        self._settings: Settings | None = None
        self._checkpoint: dict[str, Any] = {}  # that is continued, until training starts
        self._callback_options: list[tuple[Callback, str, Any]] = []  # that have changed, with their values

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self._settings, self._checkpoint, self._callback_options = None, {}, []

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn != "fit":
            return
        self._checkpoint = checkpoint
        self._callback_options = list(_callback_options(trainer, _changed_options(trainer, checkpoint)))
        if RAW in checkpoint:  # the callback that averages may be gone, and training must not go on from its average
            pl_module.load_state_dict(checkpoint[RAW], strict=pl_module.strict_loading)
        self._prepare(trainer)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._settings = Settings(trainer)
        self._prepare(trainer)

    def _prepare(self, trainer: Trainer) -> None:
        """Once the checkpoint is read and the optimizers are made; which comes first depends on the strategy."""
        if self._settings is None or not self._checkpoint:
            return
        done = self._checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
        if trainer.max_epochs is not None and 0 <= trainer.max_epochs < done:
            raise UserError(
                f"--trainer.max_epochs: expected at least the {done} epochs done so far, got {trainer.max_epochs}"
            )
        if former := self._checkpoint.get("settings"):  # not of a checkpoint that Lightning's own Trainer has saved
            self._settings.prepare(trainer, former, self._checkpoint)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        checkpoint, self._checkpoint = self._checkpoint, {}
        if not checkpoint:
            return
        assert self._settings is not None
        for callback, name, value in self._callback_options:  # EarlyStopping's state, for one, holds its patience
            setattr(callback, name, value)
        changes = _changed_options(trainer, checkpoint)
        rate_before = _rate(trainer)
        if former := checkpoint.get("settings"):
            self._settings.apply(trainer, former)
            names = {change.name for change in changes}
            setting_changes = changed_settings(former, self._settings.values)
            changes += [c for c in setting_changes if c.name not in names and (not changes or "." in c.option)]
        if not trainer.is_global_zero:
            return
        for change in changes:
            print(f"continuing with {change}", flush=True)
        if rate_before != (rate := _rate(trainer)):
            print(
                f"learning rate from step {trainer.global_step + 1:,} on: {rate:.4g} (was {rate_before:.4g})",
                flush=True,
            )
        if changes and rate == 0:
            print(
                f"warning: the learning rate is 0 from step {trainer.global_step + 1:,} on: with these changes, the "
                "schedule is over; give it more total_steps",
                flush=True,
            )
        if former and _is_amid_epoch(trainer):
            _say_what_comes_otherwise(former, self._settings.values)
        _record(trainer, changes)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._settings is not None:
            checkpoint["settings"] = self._settings.values


def _changed_options(trainer: Trainer, checkpoint: dict[str, Any]) -> list[Change]:
    """Options that the run's configuration changes; none of a run without one, as in a script."""
    config, former = getattr(trainer, "config", ""), checkpoint.get("config")
    if not config or not isinstance(former, str):
        return []
    return list(changed_options(yaml.safe_load(former) or {}, yaml.safe_load(config) or {}))


def _callback_options(trainer: Trainer, changes: list[Change]) -> Iterator[tuple[Callback, str, Any]]:
    """Changed options of callbacks, as their constructors have set them: their own state is restored afterwards."""
    for change in changes:
        if not change.option.startswith("trainer.callbacks."):
            continue
        owner = change.option.split(".")[-2]  # «callbacks», if there is one callback instead of a list
        for callback in trainer.callbacks:  # type: ignore[attr-defined]  # set by a connector
            if change.name in vars(callback) and owner in (type(callback).__name__, "callbacks"):
                yield callback, change.name, vars(callback)[change.name]


def _rate(trainer: Trainer) -> float | None:
    """Of the first group of parameters."""
    return float(trainer.optimizers[0].param_groups[0]["lr"]) if trainer.optimizers else None


def _is_amid_epoch(trainer: Trainer) -> bool:
    epoch: Any = trainer.fit_loop.epoch_progress.current
    return epoch.started > epoch.processed and trainer.fit_loop.epoch_loop.batch_progress.current.ready > 0


def _say_what_comes_otherwise(former: dict[str, Any], now: dict[str, Any]) -> None:
    if former["data"] != now["data"]:
        print(f"the rest of this epoch uses the first batches of {now['data']}", flush=True)
    elif former["seed"] != now["seed"] and None not in (former["seed"], now["seed"]):
        print("the rest of this epoch uses another seed's order: samples may be repeated or missing", flush=True)


def _record(trainer: Trainer, changes: list[Change]) -> None:
    run, step = getattr(trainer, "run", None), trainer.global_step
    if run is None:
        return
    # what an attempt changed that was cut off before its first checkpoint does not count
    earlier = [entry for entry in run.read_metrics().get("changes", []) if entry["step"] < step]
    if entries := [*earlier, *(change.entry(step) for change in changes)]:
        run.update_metrics(changes=entries)
