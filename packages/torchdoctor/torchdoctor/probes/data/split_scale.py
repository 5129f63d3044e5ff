"""Validation inputs on another scale than those of the training."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from torchdoctor.evidence import origins
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.probes.data.input_scale import first_layer_calls
from torchdoctor.running.record import CONVOLUTIONS
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import NUM_TRAIN, NUM_VAL, Subject

UNLIKE_SCALES = Defect(
    "unlike-scales",
    "warning",
    "Scores are those of inputs that the model was never trained on.",
    shown_by=Evidence("measured", "the inputs of the first layer in training and in validation were compared"),
)
_TIMES = 1.8  # of standard deviations of images; augmentation and other samples change them less
_COLUMNS, _MOST = 3.0, 0.7  # times or standard deviations, and share of the columns of a table
_ALIKE = 0.5  # of the deviation, between quantiles of the same images once each split is standardized
_FEWEST, _SIDE = 16, 8  # samples of each split; pixels of an image
_QUANTILES = torch.linspace(0.05, 0.95, 19)
_NUMBERS = 2**17  # of the pixels that are sorted


def split_scale(subject: Subject) -> Iterator[Finding | str]:
    """Compares what comes from the batch to the first layer with weights, in training and in validation steps.

    Images: the standard deviation of one split is 1.8 times that of the other or more, and standardized by their own
    mean and deviation, both have the same quantiles: the same pictures, of which a transform has scaled some alone.
    Tables: seven columns of ten have deviations that differ three-fold, or means that are three deviations apart, as
    where a scaler transforms one split only. Series that change with time are left alone, and so are a few columns.
    """
    if not subject.validates:
        return
    trained = _inputs([subject.attempt(number) for number in range(len(subject.batches[:NUM_TRAIN]))])
    evaluated = _inputs([subject.attempt(number, False) for number in range(len(subject.val_batches[:NUM_VAL]))])
    is_alike = False
    for key in trained.keys() & evaluated.keys():
        one, other = trained[key], evaluated[key]
        if min(len(one), len(other)) < _FEWEST or one.shape[1:2] != other.shape[1:2]:
            continue
        message = _of_images(one, other) if one.dim() == 4 else _of_columns(one, other)
        if message:
            fix = "# give the validation data the normalization of the training data, with the same figures"
            yield Finding(UNLIKE_SCALES, _dataset_line(subject), message, fix)
            return
        is_alike = True
    if is_alike:
        yield "inputs of the validation have the scale of those of the training"


PROBE = Probe(look=split_scale, defects=(UNLIKE_SCALES,), is_light=True)


def _dataset_line(subject: Subject) -> Place | None:
    """The line that makes the validation data, or else their loader."""
    for loader, places in origins.loaders(subject, "val"):
        line = origins.dataset_line(subject, loader.dataset)
        return line[0] if line is not None else next(iter(places), None)
    return None


def _inputs(steps: list[Step]) -> dict[int, Tensor]:
    """Images (B, C, H, W) and tables (B, F) that reach a first layer, by the identity of its weight."""
    inputs: dict[int, list[Tensor]] = {}
    for step in steps:
        for op, x, _ in first_layer_calls(step):
            weight = next(leaf for leaf in op.inputs if isinstance(leaf, nn.Parameter))
            is_image = x.dim() == 4 and op.name in CONVOLUTIONS and min(x.shape[-2:]) >= _SIDE
            if is_image or (x.dim() == 2 and x.shape[1] > 1):
                inputs.setdefault(id(weight), []).append(x.detach().double())
    return {key: torch.cat(some) for key, some in inputs.items() if len({part.shape[1:] for part in some}) == 1}


def _of_images(one: Tensor, other: Tensor) -> str:
    """What is wrong with the scale of other images; empty if nothing is."""
    deviations = float(one.std()), float(other.std())
    if min(deviations) <= 0 or max(deviations) < _TIMES * min(deviations):
        return ""
    standardized = [((part - part.mean()) / part.std()).flatten() for part in (one, other)]
    quantiles = [torch.quantile(part[:: 1 + len(part) // _NUMBERS], _QUANTILES.double()) for part in standardized]
    if float((quantiles[0] - quantiles[1]).abs().max()) > _ALIKE:
        return ""
    figures = [f"mean {float(part.mean()):.2g} and deviation {float(part.std()):.2g}" for part in (other, one)]
    return f"images of the validation have {figures[0]}, those of the training {figures[1]}; else they are alike"


def _of_columns(one: Tensor, other: Tensor) -> str:
    """What is wrong with the scales of other rows of a table; empty if nothing is."""
    (means, deviations), (other_means, other_deviations) = ((part.mean(0), part.std(0)) for part in (one, other))
    most, least = torch.maximum(deviations, other_deviations), torch.minimum(deviations, other_deviations)
    is_apart = (most > _COLUMNS * least) | ((means - other_means).abs() > _COLUMNS * most)
    is_number = least > 0
    number = int((is_apart & is_number).sum())
    if number < max(2, _MOST * int(is_number.sum())):
        return ""
    return (
        f"{number} of {int(is_number.sum())} columns have another mean or deviation in the validation than in training"
    )
