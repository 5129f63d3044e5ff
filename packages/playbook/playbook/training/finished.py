"""Whether the limits that ended a run still hold for the command that would continue it."""

from collections.abc import Iterator, Mapping
from typing import Any

from playbook.training.ending import configured, seconds_of

COUNTED = {"max_epochs": "epoch", "max_steps": "step"}  # limits of the Trainer, and what metrics.json counts


def reasons_to_stop(metrics: Mapping[str, Any], former: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What keeps a finished run from training on, each in words; empty if the command has raised what ended it.

    Args:
        metrics: content of the run's metrics.json.
        former: options of the Trainer in the checkpoint, as plain values.
        wanted: those of the command.
    """
    counts = {limit: metrics.get(name, 0) for limit, name in COUNTED.items()}
    counted = [f"--trainer.{limit}" for limit, done in counts.items() if _is_reached(done, wanted.get(limit))]
    reasons = [f"to continue, increase {' and '.join(counted)}"] if counted else []
    for ending in metrics.get("ended", []):
        reasons += _of(ending, metrics, former, wanted)
    if not reasons and "ended" not in metrics and not _is_raised(metrics, wanted):  # of a version that noted no ending
        reasons = ["to continue, increase --trainer.max_epochs"]
    return reasons


def _of(
    ending: Mapping[str, Any], metrics: Mapping[str, Any], former: Mapping[str, Any], wanted: Mapping[str, Any]
) -> Iterator[str]:
    limit, text = ending["limit"], ending["text"]
    if limit in COUNTED:
        return
    if limit == "max_time":
        seconds = seconds_of(wanted.get("max_time"))
        if seconds is not None and seconds <= ending["value"]:
            yield f"{text}; to continue, increase --trainer.max_time"
    elif limit in ("should_stop", "StopIteration"):
        if not _is_raised(metrics, wanted):
            yield f"{text}; to continue, increase --trainer.max_epochs"
    elif limit == "limit_train_batches":
        if wanted.get(limit) == former.get(limit):
            yield f"{text}; to continue, set --trainer.limit_train_batches"
    elif _entries(former, limit) == _entries(wanted, limit):
        argument = {"Timer": "duration"}.get(limit, "patience" if "has not improved" in text else "threshold")
        yield f"{text}; to continue, change the {argument} of {limit} in --trainer.callbacks"


def _is_reached(done: int, limit: Any) -> bool:
    return isinstance(limit, int) and 0 <= limit <= done


def _is_raised(metrics: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a limit of epochs or steps is higher than in the run."""
    return any(
        wanted.get(name) is not None and wanted[name] != limit and (wanted[name] == -1 or 0 <= limit < wanted[name])
        for name, limit in metrics.get("limits", {}).items()
    )


def _entries(options: Mapping[str, Any], name: str) -> list[Any]:
    """Arguments of the configured callbacks of a class."""
    return [entry.get("init_args") for entry in configured(options, name)]
