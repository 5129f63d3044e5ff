"""The metric that decides which epoch is the best: the task's own, or else the first validation loss that is logged."""

from collections.abc import Collection
from typing import Any, Literal

from torchmetrics import MetricCollection

Mode = Literal["min", "max"]
LOSSES = ("val/loss", "val_loss", "valid_loss")
FIRST_LOADER = "/dataloader_idx_0"  # which Lightning appends to names where there are several loaders


def own_measure(module: Any) -> tuple[str, Mode] | None:
    """Name and direction of the metric that a task names as `monitor` and `monitor_mode`, as the base class Task does.

    Args:
        module: any LightningModule; one that knows nothing of Playbook has no such attributes.
    """
    monitor, mode = getattr(module, "monitor", None), getattr(module, "monitor_mode", None)
    return (monitor, mode) if isinstance(monitor, str) and mode in ("min", "max") else None


def logged_measure(module: Any, names: Collection[str]) -> tuple[str, Mode] | None:
    """The task's metric, or else the first validation loss, that is among the names that were logged.

    Args:
        module: any LightningModule.
        names: of logged metrics.
    """
    candidates: list[tuple[str, Mode]] = [(name, "min") for name in LOSSES]
    if (own := own_measure(module)) is not None:
        candidates.insert(0, own)
    for name, mode in candidates:
        for logged_name in (name, name + FIRST_LOADER):
            if logged_name in names:
                return logged_name, mode
    return None


def direction(module: Any, monitor: str) -> Mode | None:
    """Whether a metric should grow (max) or shrink (min), as the task or the metric itself says; None if neither does.

    Args:
        module: any LightningModule.
        monitor: name of a logged metric.
    """
    own = own_measure(module)
    if own is not None and own[0] == monitor:
        return own[1]
    for collection in module.modules():
        if isinstance(collection, MetricCollection):
            metric: Any = dict(collection.items()).get(monitor)
            if metric is not None and metric.higher_is_better is not None:
                return "max" if metric.higher_is_better else "min"
    return None
