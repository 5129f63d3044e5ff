"""Runs a validation and collects what it logs."""

from collections.abc import Callable, Iterable
from functools import partial
from numbers import Real
from sys import _getframe
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from torchdoctor import source
from torchdoctor.running.subject import Subject
from torchdoctor.running.unchanged import redirect_logs

Log = Callable[..., None]


def run_validation(subject: Subject, batches: Iterable[Any], log: Log) -> None:
    """Runs the steps and hooks of one validation.

    Args:
        subject: within its `unchanged` and `evaluating`; all its metrics begin anew.
        batches: of the validation.
        log: called with the number of the batch, None behind the last one, with the line that logs, and with the
            arguments of `log`, or of each item of `log_dict`.

    Raises:
        Exception: whatever a step or a hook raises.
    """
    model = subject.model

    def log_one(index: int | None, name: str, value: Any, *args: Any, **kwargs: Any) -> None:
        log(index, next(iter(source.callers(_getframe(1))[0]), None), name, value, *args, **kwargs)

    def log_dict(index: int | None, dictionary: Any, *args: Any, **kwargs: Any) -> None:
        for name, value in dictionary.items():
            log_one(index, name, value, *args, **kwargs)

    for metric in (part for part in model.modules() if isinstance(part, Metric)):
        metric.reset()
    model.on_validation_start()
    model.on_validation_epoch_start()
    for index, batch in enumerate(batches):
        redirect_logs(model, partial(log_one, index), partial(log_dict, index))
        torch.manual_seed(0)
        model.on_validation_batch_start(batch, index, 0)
        output = subject.validate(batch, index)
        model.on_validation_batch_end(output, batch, index, 0)
    redirect_logs(model, partial(log_one, None), partial(log_dict, None))
    model.on_validation_epoch_end()
    model.on_validation_end()


def is_number(value: Any) -> bool:
    """Whether a logged value is a plain number."""
    return value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, Real)
