"""What ended a training: the limit that was reached, its value, and the options with which it trains on."""

import inspect
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, Timer
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason

from playbook.training.lightning.position import epochs_done, num_batches


@dataclass(frozen=True)
class Ending:
    """One limit that was reached.

    Args:
        limit: option of the Trainer, class of a callback, or should_stop.
        text: the limit with its value, in words.
        value: of the limit, where it is one number; seconds for a time.
        more: options of a command that trains on; empty if none does.
    """

    limit: str
    text: str
    value: float | None = None
    more: str = ""


def endings(trainer: Trainer, config: str = "") -> list[Ending]:
    """The limits that have ended a training, each of which would end it again; after `fit`.

    Args:
        trainer: that has trained.
        config: the run's configuration as YAML, for options of callbacks.
    """
    settings: Any = trainer  # some attributes are set by connectors
    if settings.fast_dev_run:
        return [Ending("fast_dev_run", f"fast_dev_run {settings.fast_dev_run:d}", settings.fast_dev_run)]
    if settings.limit_train_batches == 0 or num_batches(trainer) == 0:
        return [Ending("limit_train_batches", "there are no training batches", 0)]
    options = (yaml.safe_load(config) or {}).get("trainer", {}) if config else {}
    reached = [*_counted(trainer)]
    if trainer.should_stop:  # else a callback has its reason from a checkpoint
        reached += _of_callbacks(trainer, options)
    if not reached and trainer.should_stop:
        place = getattr(trainer, "stopped_at", None)
        text = "trainer.should_stop was set" + (f" at {place}" if place else "")
        reached = [Ending("should_stop", text, more=_raised(trainer))]
    return reached or [Ending("StopIteration", "a StopIteration left the loop over epochs", more=_raised(trainer))]


def plain(reached: list[Ending]) -> list[dict[str, Any]]:
    """The same as plain values, for metrics.json."""
    return [asdict(ending) for ending in reached]


def _counted(trainer: Trainer) -> Iterator[Ending]:
    steps, epochs = trainer.max_steps, trainer.max_epochs
    if steps not in (None, -1) and trainer.global_step >= steps:
        yield Ending("max_steps", f"max_steps {steps}", steps, f"--trainer.max_steps {2 * steps}")
    if epochs not in (None, -1) and epochs_done(trainer) >= epochs:
        yield Ending("max_epochs", f"max_epochs {epochs}", epochs, f"--trainer.max_epochs {2 * epochs}")


def _raised(trainer: Trainer) -> str:
    """Options that raise the limits which were not reached; a finished run continues with these alone."""
    if trainer.max_epochs not in (None, -1):
        return f"--trainer.max_epochs {2 * trainer.max_epochs}"
    return f"--trainer.max_steps {2 * trainer.max_steps}" if trainer.max_steps != -1 else ""


def _of_callbacks(trainer: Trainer, options: Mapping[str, Any]) -> Iterator[Ending]:
    for callback in trainer.callbacks:  # type: ignore[attr-defined]  # set by a connector
        if isinstance(callback, Timer) and (remaining := callback.time_remaining()) is not None and remaining <= 0:
            seconds = callback.time_elapsed() + remaining
            longer = _clock(2 * seconds)
            is_option = options.get("max_time") is not None
            yield Ending(
                "max_time" if is_option else type(callback).__name__,
                f"{'max_time' if is_option else 'Timer: duration'} {_clock(seconds)}",
                seconds,
                f"--trainer.max_time {longer}" if is_option else _changed(callback, options, {"duration": longer}),
            )
        elif isinstance(callback, EarlyStopping) and callback.stopping_reason != EarlyStoppingReason.NOT_STOPPED:
            yield _of_early_stopping(trainer, callback, options)


def _of_early_stopping(trainer: Trainer, callback: EarlyStopping, options: Mapping[str, Any]) -> Ending:
    reason, monitor = callback.stopping_reason, callback.monitor
    value = trainer.callback_metrics.get(monitor)
    measured = monitor if value is None else f"{monitor} {float(value):.4g}"
    limit, change = "patience", {"patience": 2 * callback.wait_count}
    text = f"{monitor} has not improved on {float(callback.best_score):.4g} in {callback.wait_count} checks"
    if reason == EarlyStoppingReason.NON_FINITE_METRIC:
        limit, change, text = "check_finite", {}, f"{measured} is not finite"  # training on would not make it so
    elif reason == EarlyStoppingReason.STOPPING_THRESHOLD:
        limit, change = "stopping_threshold", {"stopping_threshold": None}
        text = f"{measured} has reached the stopping_threshold {callback.stopping_threshold}"
    elif reason == EarlyStoppingReason.DIVERGENCE_THRESHOLD:
        limit, change = "divergence_threshold", {"divergence_threshold": None}
        text = f"{measured} has reached the divergence_threshold {callback.divergence_threshold}"
    bound = getattr(callback, limit)
    number = float(bound) if isinstance(bound, int | float) else None
    name = type(callback).__name__
    return Ending(name, f"{name}: {text}", number, _changed(callback, options, change) if change else "")


def _changed(callback: Callback, options: Mapping[str, Any], change: dict[str, Any]) -> str:
    """The option that configures a callback anew, with some arguments changed; empty if the configuration lacks it."""
    entries = configured(options, type(callback).__name__)
    if len(entries) != 1:
        return ""
    defaults = inspect.signature(type(callback)).parameters
    arguments = (entries[0].get("init_args") or {}) | change
    told = {key: value for key, value in arguments.items() if key in defaults and value != defaults[key].default}
    entry = {"class_path": entries[0]["class_path"], "init_args": told}
    return f"--trainer.callbacks+ {shlex.quote(yaml.safe_dump(entry, default_flow_style=True, width=math.inf).strip())}"


def configured(options: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The callbacks of a class in the options of a Trainer, each as class_path and init_args.

    Args:
        options: of the Trainer, as plain values.
        name: of the class, without its module.
    """
    callbacks = options.get("callbacks") or []
    entries = callbacks if isinstance(callbacks, list) else [callbacks]
    return [entry for entry in entries if isinstance(entry, dict) and entry["class_path"].rpartition(".")[2] == name]


def seconds_of(duration: Any) -> float | None:
    """Seconds of a max_time as DD:HH:MM:SS, a dict of timedelta's arguments or a timedelta; None if there is none.

    Args:
        duration: value of max_time.
    """
    if isinstance(duration, str):
        days, hours, minutes, seconds = (int(part) for part in duration.strip().split(":"))
        duration = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    elif isinstance(duration, Mapping):
        duration = timedelta(**duration)
    return duration.total_seconds() if isinstance(duration, timedelta) else None


def _clock(seconds: float) -> str:
    """DD:HH:MM:SS."""
    minutes, rest = divmod(max(1, math.ceil(seconds - 1e-6)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24:02}:{hours % 24:02}:{minutes:02}:{rest:02}"


def source_line(frame: Any) -> str:
    """`file:line` of a frame, from the working directory where the file lies below it."""
    path = Path(frame.f_code.co_filename)
    path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{os.fspath(path)}:{frame.f_lineno}"
