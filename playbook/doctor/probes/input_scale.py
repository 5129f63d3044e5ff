"""Inputs that are far from unit scale when they reach the first trainable layer."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from playbook.doctor import blame, replay, source
from playbook.doctor.findings import POOR_START, Defect, Evidence, Finding, Place
from playbook.doctor.record import CONVOLUTIONS, Op, Record
from playbook.doctor.samples import base, owner, train_loaders
from playbook.doctor.subject import Subject

UNNORMALIZED_INPUT = Defect(
    "unnormalized-input",
    "warning",
    "Large inputs make large gradients: training is slow or unstable.",
    explains=("dead-units", "amp-unsafe", *POOR_START),
    shown_by=Evidence("measured", "the inputs of the first layer were measured"),
)
DEFECTS = (UNNORMALIZED_INPUT,)

LARGE = 10.0
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_PRODUCTS = ("matmul", "mm", "addmm", "bmm", "einsum", "multi_head_attention_forward")
_LAYERS = {*CONVOLUTIONS, *_RECURRENT, *_PRODUCTS, "linear", "bilinear"}


def input_scale(subject: Subject) -> Iterator[Finding | str]:
    """Measures every channel of what comes from the batch to a layer with trainable weights, before any other layer.

    The threshold is a root mean square of 10 in a channel: standardised data have 1, pixels of 0 to 255 about 100. A
    norm in front of the layer, a division in forward and embedded indices are seen as they are: their results count.
    LeCun et al. 1998, "Efficient BackProp", section 4.3, for why the scale matters.
    """
    squares: dict[tuple[Any, ...], tuple[Tensor, int]] = {}
    entries: dict[tuple[Any, ...], tuple[Op, Tensor, Tensor]] = {}
    for index, batch in enumerate(subject.batches[:3]):
        record = subject.attempt(index).record
        given = {id(leaf): leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)}
        given |= {id(value): value for value in _attributes(batch)}
        for op, operand, leaf in _entries(record, given):
            square, number = _squares(op, operand)
            key = (op.place, len(square))
            before, numbers = squares.get(key, (0.0, 0))
            squares[key], entries[key] = (before + square, numbers + number), (op, operand, leaf)
    sizes = {key: (square / number).sqrt().max().item() for key, (square, number) in squares.items()}
    for key, (op, operand, leaf) in entries.items():
        if (size := sizes[key]) > LARGE and np.isfinite(size):
            low, high = operand.min().item(), operand.max().item()
            message = f"{op.name} gets inputs between {low:.4g} and {high:.4g}, with a root mean square of {size:.3g}"
            fix = "x = x / 255  # pixels" if _is_pixels(operand) else "x = (x - mean) / std  # of the training data"
            yield Finding(UNNORMALIZED_INPUT, _place(subject, leaf, operand) or op.place, message, fix)
            return
    if sizes:
        yield f"inputs reach the first layer with a root mean square of at most {max(sizes.values()):.2g}"


def _attributes(batch: Any) -> list[Tensor]:
    """Tensors of an object that is no container: a graph."""
    things = [leaf for leaf in tree_leaves(batch) if not isinstance(leaf, Tensor) and hasattr(leaf, "__dict__")]
    found = []
    for thing in things:
        values = thing.to_dict() if callable(getattr(thing, "to_dict", None)) else vars(thing)
        found += [value for value in values.values() if isinstance(value, Tensor)]
    return found


def _entries(record: Record, given: dict[int, Tensor]) -> Iterator[tuple[Op, Tensor, Tensor]]:
    """Calls with a trainable weight on something that no layer has touched yet, with the batch's leaf it came from."""
    origin = dict(given)
    kept = []  # identities must not be reused
    for op in record.ops:
        inputs = op.inputs
        weights = [item for item in inputs if isinstance(item, nn.Parameter)]
        from_batch = [item for item in inputs if id(item) in origin and not isinstance(item, nn.Parameter)]
        if from_batch and op.name in _LAYERS and any(weight.requires_grad for weight in weights):
            operand = from_batch[0]
            if operand.is_floating_point() and operand.numel():
                yield op, operand, origin[id(operand)]
        elif from_batch and not weights and all(id(item) in origin for item in inputs if item.requires_grad):
            for out in op.outputs:
                if id(out) not in origin:
                    origin[id(out)] = origin[id(from_batch[0])]
                    kept.append(out)


def _squares(op: Op, operand: Tensor) -> tuple[Tensor, int]:
    """The sum of the squares in each channel, and of how many values."""
    channels = 1 if op.name in CONVOLUTIONS and operand.dim() > 2 else -1
    values = operand.double()[None] if operand.dim() == 1 else operand.double().movedim(channels, -1).flatten(0, -2)
    return values.square().sum(dim=0), len(values)


def _is_pixels(x: Tensor) -> bool:
    return x.min().item() >= 0 and 100 < x.max().item() <= 255


def _place(subject: Subject, leaf: Tensor, operand: Tensor) -> Place | None:
    """Where a float tensor of this scale is made; if there is none, where floats of this scale are."""
    values = (leaf if leaf.is_floating_point() else operand).double()
    size = values.square().mean().sqrt().item()

    def alike(array: np.ndarray, factor: float) -> bool:  # pragma: no cover - a tracer is not traced
        if array.dtype.kind != "f" or array.size < 2 or array.size < leaf.numel() // max(1, len(leaf)):
            return False
        finite = array[np.isfinite(array)].astype(np.float64)
        return finite.size > 0 and size / factor < np.sqrt(np.square(finite).mean()) < factor * size

    def is_made(array: np.ndarray, value: Any, factor: float) -> bool:  # pragma: no cover - a tracer is not traced
        return isinstance(value, Tensor) and value.dtype != torch.float64 and alike(array, factor)

    place = (
        replay.first_line(subject, lambda array, value: is_made(array, value, 1.3))
        or replay.first_line(subject, lambda array, value: is_made(array, value, 4))
        or replay.first_line(subject, lambda array, value: alike(array, 4))
    )
    return (_made(subject, place) if place is not None else None) or place


def _made(subject: Subject, place: Place) -> Place | None:
    """Where a transform of a library's is made, if the line only calls it as an attribute of the data set."""
    keeper = owner(subject)
    for loader in train_loaders(subject):
        dataset = base(loader.dataset)
        for name, value in getattr(dataset, "__dict__", {}).items():
            if f"self.{name}(" in place.code and callable(value) and source.definition(type(value)) is None:
                names = [kept for kept, held in vars(keeper).items() if held is value]
                line = blame.dataset_line(subject, dataset)
                return source.assignment(keeper, names[0]) if names else (line[0] if line else None)
    return None
