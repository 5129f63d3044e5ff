"""Batch norms: biases that they cancel, batches that are too small for them, an epsilon that is no epsilon."""

import linecache
import re
from collections.abc import Iterator

from torch import nn

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.evidence.dependence import map_tensors, module_name
from torchdoctor.evidence.samples import short_batch_size
from torchdoctor.findings import Defect, Evidence, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.subject import Subject

BIAS_BEFORE_NORM = Defect(
    "bias-before-norm",
    "advice",
    "The norm subtracts the bias again: parameters and time for nothing.",
    section="Performance",
)
NORM_BATCH_SIZE_ONE = Defect(
    "norm-batch-size-one",
    "warning",
    "One value has no variance: training ends with an error at that batch.",
    explains=("crash",),
    shown_by=Evidence("experiment", "a training step was run with a batch of one sample"),
)
NORM_EPSILON = Defect(
    "norm-epsilon",
    "warning",
    "The norm hardly normalises: what passes it shrinks from layer to layer.",
    shown_by=Evidence("measured", "the variance of the norm's input was compared with its epsilon"),
)
_LAYERS = (nn.Linear, nn.modules.conv._ConvNd)
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


def norms(subject: Subject, largest_epsilon: float = 1e-2, least_deviation: float = 0.9) -> Iterator[Finding | str]:
    """Looks at what the norms get in a step, and at a step with one sample if an epoch has one.

    A layer's bias is cancelled if its very output is the input of a norm that subtracts each channel's mean (Ioffe and
    Szegedy 2015, section 3.2). One value a channel has no variance: torch refuses it, but not in evaluation mode. The
    second argument of a norm is its epsilon, which is added to the variance, and not its momentum.

    Args:
        subject: the training that has just begun.
        largest_epsilon: that networks have.
        least_deviation: of normalised values, which is nearly 1.
    """
    yield from _cancelled_biases(subject)
    yield from _single_sample_batches(subject)
    yield from _large_epsilons(subject, largest_epsilon, least_deviation)


PROBE = Probe(look=norms, defects=(BIAS_BEFORE_NORM, NORM_BATCH_SIZE_ONE, NORM_EPSILON), is_light=True)


def _large_epsilons(subject: Subject, largest_epsilon: float, least_deviation: float) -> Iterator[Finding]:
    places = set()
    for op in subject.attempt().record.named("batch_norm"):
        epsilon, x, part = op.argument(7, "eps", 0.0), op.inputs[0], op.module
        deviation = x.transpose(0, 1).flatten(1).var(1).detach()
        remaining = float((deviation / (deviation + epsilon)).sqrt().mean()) if epsilon > largest_epsilon else 1.0
        if not remaining < least_deviation or part is None or (place := origins.layer(subject.model, part)) in places:
            continue
        places.add(place)
        name = module_name(subject.model, part)
        message = (
            f"{name}: eps={epsilon:g} is added to the variance, so that the deviation is {remaining:.2g} and not 1"
        )
        fix = f"nn.{type(part).__name__}(…, momentum={epsilon:g})  # if that was meant; eps is 1e-5"
        yield Finding(NORM_EPSILON, place, message, fix)


def _cancelled_biases(subject: Subject) -> Iterator[Finding | str]:
    record = subject.attempt().record
    cancelled: dict[nn.Module, int] = {}
    for op in record.named("batch_norm", "instance_norm"):
        producer = record.producer(op.inputs[0])
        layer = producer.module if producer is not None and op.argument(5, "training") else None
        if isinstance(layer, _LAYERS) and layer.bias is not None and layer.bias.requires_grad:
            cancelled[layer] = layer.bias.numel()
    if not cancelled:
        return
    others = {
        origins.layer(subject.model, part)
        for part in subject.model.modules()
        if isinstance(part, _LAYERS) and part.bias is not None and part not in cancelled
    }
    is_read = any(map(_reads_bias, subject.files))
    for layer, number in cancelled.items():
        name, kind, place = module_name(subject.model, layer), type(layer).__name__, origins.layer(subject.model, layer)
        message = f"{name}: its bias of {number} is subtracted again by the norm that follows"
        fix, values = f"nn.{kind}(…, bias=False)", {"layer": kind}
        if place in others or is_read:
            fix = f"# bias=False for each {kind} that a norm follows" + ("; then .bias is None" if is_read else "")
            values = {}
        yield Finding(BIAS_BEFORE_NORM, place, message, fix, values)


def _reads_bias(file: str) -> bool:
    """Whether a file takes biases as tensors, as the initialisation of all layers does, without asking for None."""
    text = "".join(linecache.getlines(file))
    return re.search(r"\.bias\b", text) is not None and "bias is not None" not in text


def _single_sample_batches(subject: Subject) -> Iterator[Finding | str]:
    normalizations = [module for module in subject.model.modules() if isinstance(module, _NORMS)]
    batch, rest = subject.batches[0], next(map(short_batch_size, subject.loaders("train")), 0)
    has_one = num_samples(batch) is not None and 1 in (num_samples(batch), rest)
    if has_one:
        batch = map_tensors(batch, lambda leaf: leaf[:1])
    for part in subject.model.modules():  # whose own `train` may ask for more
        part.training = True
    error = subject.record(batch).error if normalizations else None
    for module in normalizations:
        module.eval()
    if not isinstance(error, ValueError) or subject.record(batch).error is not None:
        return
    if has_one:
        message = f"the last batch of an epoch has one sample: {error}" if rest == 1 else f"batches of one: {error}"
        fix = "DataLoader(…, drop_last=True)  # or another batch_size"
        [(_, places), *_] = origins.loaders(subject, "train")
        yield Finding(NORM_BATCH_SIZE_ONE, places[0] if places else None, message, fix)
    else:
        message = f"the step gives its norm one row: {error}"
        fix = "nn.LayerNorm(…)  # or more samples a step"
        yield Finding(NORM_BATCH_SIZE_ONE, source.raised_at(error), message, fix)
