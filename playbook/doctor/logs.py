"""Validations that are run for what they log."""

from collections.abc import Callable, Iterable
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from playbook.doctor.subject import Subject
from playbook.doctor.unchanged import redirect_logs

Log = Callable[..., None]


def run_validation(subject: Subject, batches: Iterable[Any], log: Log) -> None:
    """Runs the steps and the hooks of one validation.

    Args:
        subject: within its `unchanged` and `evaluating`; all its metrics begin anew.
        batches: of the validation.
        log: called with the number of the batch, None behind the last one, and with the arguments of `log`, or of
            each item of `log_dict`.

    Raises:
        Exception: whatever a step or a hook raises.
    """
    model = subject.model

    def log_dict(index: int | None, dictionary: Any, *args: Any, **kwargs: Any) -> None:
        for name, value in dictionary.items():
            log(index, name, value, *args, **kwargs)

    for metric in (part for part in model.modules() if isinstance(part, Metric)):
        metric.reset()
    model.on_validation_start()
    model.on_validation_epoch_start()
    for index, batch in enumerate(batches):
        redirect_logs(model, partial(log, index), partial(log_dict, index))
        torch.manual_seed(0)
        model.on_validation_batch_start(batch, index, 0)
        output = subject.validate(batch, index)
        model.on_validation_batch_end(output, batch, index, 0)
    redirect_logs(model, partial(log, None), partial(log_dict, None))
    model.on_validation_epoch_end()
    model.on_validation_end()


def is_number(value: Any) -> bool:
    """Whether a value is logged as it is."""
    return value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, Real)
