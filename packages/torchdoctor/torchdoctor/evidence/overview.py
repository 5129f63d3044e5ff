"""Summarises model, data, optimizer and validation of a program in measured sentences."""

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.utils.data import DataLoader

from torchdoctor.running.record import tensors
from torchdoctor.running.subject import Subject


def describe(subject: Subject) -> list[str]:
    """Up to three sentences: the model and its data, the optimizer and its loss, the validation."""
    sentences = [f"Trains {' and '.join(_models(subject))} on {_batches(subject)}."]
    with suppress(Exception):  # of any kind, as the user's step raises it
        sentences.append(_step(subject))
    sentences.append(_validation(subject))
    return [text for text in sentences if text]


def name_of_model(subject: Subject) -> str:
    """The program's name of its largest model."""
    parts = list(subject.model.named_children()) if subject.script is not None else []
    return max(parts, key=lambda part: _size(part[1]))[0] if parts else "model"


def _models(subject: Subject) -> Iterator[str]:
    parts = dict(subject.model.named_children()) if subject.script is not None else {"": subject.model}
    for name, part in parts.items():
        kind, size = type(part).__name__, f"{_size(part):,} weights"
        yield f"{name} ({kind}, {size})" if name else f"{kind} ({size})"


def _size(part: Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters() if not _is_lazy(parameter))


def _is_lazy(parameter: Tensor) -> bool:
    return type(parameter).__name__ == "UninitializedParameter"


def _batches(subject: Subject) -> str:
    if not subject.batches:
        return "no batches of a loader"
    shapes = [_shape(leaf) for leaf in tensors(subject.batches[0])]
    text = f"batches of {' and '.join(shapes[:3])}{f' and {len(shapes) - 3} more' if len(shapes) > 3 else ''}"
    number = _number(subject)
    return f"{text}, {number:,} an epoch" if number else text


def _shape(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _number(subject: Subject) -> int:
    """The number of batches of an epoch; 0 if unknown."""
    loaders: list[Any] = []
    if subject.script is not None:
        loaders = subject.script.loaders
    else:
        with suppress(Exception):  # of any kind, as the user's method raises it
            loaders = list(subject.loaders("train"))
    with suppress(Exception):  # a stream has no length
        return len(loaders[0]) if loaders and isinstance(loaders[0], DataLoader) else 0
    return 0


def _step(subject: Subject) -> str:
    optimizers = []
    for each in subject.trainer.optimizers:
        rates = dict.fromkeys(float(group["lr"]) for group in each.param_groups)
        optimizers.append(f"{type(each).__name__} at lr={'/'.join(f'{rate:g}' for rate in rates)}")
    step = subject.step()
    named = list(dict.fromkeys(loss.op.name for loss in step.losses))
    value = float(step.loss.detach().mean()) if step.loss is not None else math.nan
    loss = " + ".join(named) or "a loss of its own"
    amount = f", {value:.3g} on the first batch" if math.isfinite(value) else ""
    takes = f"; a step takes {_time(subject.seconds)} here" if subject.seconds else ""
    return f"{' and '.join(optimizers) or 'No optimizer of torch'} minimises {loss}{amount}{takes}."


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


def _validation(subject: Subject) -> str:
    if not subject.validates:
        return "The review saw no validation."
    shapes = [_shape(leaf) for leaf in tensors(subject.val_batches[0])]
    return f"Validates on batches of {' and '.join(shapes[:3])}." if shapes else "Validates."
