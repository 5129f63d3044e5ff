"""Inputs far from unit scale at the first trainable layer."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchdoctor import source
from torchdoctor.evidence import origins, replay
from torchdoctor.evidence.dependence import map_tensors, predictions, relative_change, sample_outputs
from torchdoctor.evidence.samples import leaves, loader_owner, train_loaders, underlying_dataset
from torchdoctor.findings import POOR_START, Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.record import CONVOLUTIONS, RECURRENT, Op, tensors
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

UNNORMALIZED_INPUT = Defect(
    "unnormalized-input",
    "warning",
    "Large inputs make large gradients: training is slow or unstable.",
    explains=("dead-units", "amp-unsafe", *POOR_START),
    shown_by=Evidence("measured", "the inputs of the first layer were measured"),
)

_NUM_BATCHES = 3
_LITTLE = 0.3  # change of predictions by half of a batch's values: up to 0.21 where norms follow, else 0.54 and more
_SAME = 0.01  # of the losses of a batch and a smaller one
_NEAR, _NEAR_SAMPLE = 1.3, 4.0  # times the scale, so that it is the same data; one sample varies more
_PRODUCTS = ("matmul", "mm", "addmm", "bmm", "einsum", "multi_head_attention_forward")
_NORMS = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize"}
_NORMS |= {"norm", "vector_norm", "std", "std_mean", "var", "var_mean", "rsqrt"}  # written by hand
_LAYERS = {*CONVOLUTIONS, *RECURRENT, *_PRODUCTS, "linear", "bilinear"}


def input_scale(subject: Subject, large: float = 10.0, small: float = 0.01) -> Iterator[Finding | str]:
    """Measures every channel of what comes from the batch to a layer with trainable weights, before any other layer.

    The threshold is a root mean square of 10 in a channel, in each of three batches: standardised data have 1, pixels
    of 0 to 255 about 100. A norm in front of the layer, a division in forward and embedded indices are seen as they
    are: their results count. Where half of a batch's values leave the predictions as they are, as a norm behind the
    layer does, this is advice; where no labels are classes, and they leave the loss, a forecast has a relative error,
    and this is by design. Inputs below 0.01 that no norm scales up are advice, and a warning where images seem to be
    divided by 255 a second time. LeCun et al. 1998, "Efficient BackProp", section 4.3, for why the scale matters.

    Args:
        subject: the training that has just begun.
        large: root mean square of a channel above which inputs are reported.
        small: the same below which they are; pixels of 0 to 1 have 0.1 and more.
    """
    sizes: dict[tuple[Any, ...], list[float]] = {}
    entries: dict[tuple[Any, ...], tuple[Op, Tensor, Tensor]] = {}
    for number in range(len(subject.batches[:_NUM_BATCHES])):
        for op, x, leaf in first_layer_calls(subject.attempt(number)):
            channels = x.double().movedim(_axis(op, x), -1) if x.dim() > 1 else x.double()[None]
            size = channels.flatten(0, -2).square().mean(dim=0).sqrt().max().item()
            key = (op.place, channels.shape[-1])
            sizes.setdefault(key, []).append(size)
            entries[key] = op, x, leaf
    for key, (op, x, leaf) in entries.items():
        size, low, high = min(sizes[key]), x.min().item(), x.max().item()
        if size > large and np.isfinite(sizes[key]).all():
            message = f"{op.name} gets inputs between {low:.4g} and {high:.4g}, with a root mean square of {size:.3g}"
            message += " in a channel" if key[1] > 1 else ""
            is_pixels = low >= 0 and 100 < high <= 255
            has_large_targets = _has_large_targets(subject, large)
            fix = "x = x / 255  # pixels" if is_pixels else "x = (x - mean) / std  # of the training data"
            fix += "; and so the targets, which are as large" if has_large_targets else ""
            values = {"variant": "pixels"} if is_pixels and not has_large_targets else {}
            is_scalable = leaf.is_floating_point() or leaf.dtype == torch.uint8
            defect, effect = UNNORMALIZED_INPUT, _effect_of(subject, 0.5) if is_scalable else ""
            if effect == "none":
                defect = replace(defect, severity="advice")
                message += "; half of them change predictions little, as where a norm follows"
            if effect != "in proportion":
                yield Finding(defect, _place(subject, leaf, x) or op.place, message, fix, values)
                return
        elif 0 < max(sizes[key]) < small and leaf.is_floating_point() and _effect_of(subject, 1 / size) != "none":
            message = f"{op.name} gets inputs between {low:.2g} and {high:.2g}, with a root mean square of {size:.2g}"
            is_divided_twice = op.name in CONVOLUTIONS and low >= 0 and 0.5 < high * 255 < 1.01
            defect = replace(UNNORMALIZED_INPUT, impact="The network hardly sees its inputs beside its biases.")
            defect = defect if is_divided_twice else replace(defect, severity="advice")
            fix = "# divide by 255 once" if is_divided_twice else "x = (x - mean) / std  # of the training data"
            yield Finding(defect, _place(subject, leaf, x) or op.place, message, fix)
            return
    largest = max((max(values) for values in sizes.values()), default=math.inf)
    if math.isfinite(largest):  # a mask of −inf is an input as well
        yield f"inputs reach the first layer with a root mean square of at most {largest:.2g}"


PROBE = Probe(look=input_scale, defects=(UNNORMALIZED_INPUT,))


def _has_large_targets(subject: Subject, large: float) -> bool:
    targets = [loss.target for loss in subject.attempt().losses if loss.kind == "regression"]
    return any(_root_mean_square(target.detach().numpy()) > large for target in targets)


def _effect_of(subject: Subject, factor: float) -> str:
    """The effect of scaling a batch: "none" on predictions, "in proportion" where the loss stays, or "" for more."""
    batch = subject.batches[0]
    scaled = map_tensors(batch, partial(_times, factor))
    with subject.not_optimized(), subject.unchanged():
        before, after = subject.record(batch), subject.record(scaled)
    size = num_samples(batch) or 0
    results = [predictions(step) or sample_outputs(step, size)[-1:] for step in (before, after)]
    pairs = [(a, b) for a, b in zip(*results, strict=False) if a.shape == b.shape]
    has_norm = any(op.name.strip("_") in _NORMS for op in before.record.ops)
    if has_norm and pairs and all(float(relative_change(a, b).max()) < _LITTLE for a, b in pairs):
        return "none"
    losses = [0.0 if step.loss is None else float(step.loss.detach().sum()) for step in (before, after)]
    has_classes = not all(item.is_floating_point() for item in tensors(batch))
    return "" if has_classes or abs(losses[0] - losses[1]) > _SAME * abs(losses[0]) else "in proportion"


def _times(factor: float, leaf: Tensor) -> Tensor:
    is_scalable = leaf.is_floating_point() or leaf.dtype == torch.uint8
    return (leaf * factor).to(leaf.dtype) if is_scalable else leaf


def first_layer_calls(step: Step) -> Iterator[tuple[Op, Tensor, Tensor]]:
    """Calls with a trainable weight on something that no layer has touched yet, with the batch's leaf it came from."""
    origin = {id(leaf): leaf for leaf in leaves(step.batch).values()}
    for op in step.record.ops:
        weights = [item for item in op.inputs if isinstance(item, nn.Parameter)]
        x = next((item for item in op.inputs if id(item) in origin and not isinstance(item, nn.Parameter)), None)
        if x is None:
            continue
        if op.name in _LAYERS and any(weight.requires_grad for weight in weights):
            if x.is_floating_point() and x.numel():
                yield op, x, origin[id(x)]
        elif not weights and all(id(item) in origin for item in op.inputs if item.requires_grad):
            for out in op.outputs:
                origin.setdefault(id(out), origin[id(x)])


def _axis(op: Op, x: Tensor) -> int:
    """The dimension of the channels."""
    return 1 if op.name in CONVOLUTIONS and x.dim() > 2 else -1


def _place(subject: Subject, leaf: Tensor, x: Tensor) -> Place | None:
    """The line that makes floats of this scale: those that the net gets, or those they are computed from."""
    num_values = leaf.numel() // max(1, len(leaf))  # of a sample
    size = _root_mean_square((leaf if leaf.is_floating_point() else x).numpy())

    def is_alike(array: np.ndarray, value: Any) -> bool:  # pragma: no cover - a tracer is not traced
        if array.dtype.kind != "f" or array.size < max(2, num_values):
            return False
        near = _NEAR_SAMPLE if array.size == num_values else _NEAR
        return size / near < _root_mean_square(array) < near * size

    place = replay.first_tensor_line(subject, is_alike)
    return (_transform_line(subject, place) if place is not None else None) or place


def _root_mean_square(array: np.ndarray) -> float:
    return float(np.sqrt(np.square(array[np.isfinite(array)], dtype=np.float64).mean()))


def _transform_line(subject: Subject, place: Place) -> Place | None:
    """Where a transform of a library's is made, if the line only calls it as an attribute of the data set."""
    keeper = loader_owner(subject)
    for loader in train_loaders(subject):
        dataset = underlying_dataset(loader.dataset)
        for name, value in getattr(dataset, "__dict__", {}).items():
            if f"self.{name}(" in place.code and callable(value) and source.definition(type(value)) is None:
                names = [own for own, attribute in vars(keeper).items() if attribute is value]
                line = origins.dataset_line(subject, dataset)
                return source.assignment(keeper, names[0]) if names else (line[0] if line else None)
    return None
