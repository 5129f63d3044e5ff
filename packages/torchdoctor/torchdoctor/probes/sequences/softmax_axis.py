"""Attention weights normalised over another axis than the summed one."""

from collections.abc import Iterator

from torch import Tensor, nn

from torchdoctor.evidence import origins
from torchdoctor.evidence.softmax import Softmax
from torchdoctor.evidence.weighted_sums import TIMES, WeightedSum, is_binary
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt, Place
from torchdoctor.probe import Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.losses import SHAPE_ONLY
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

SOFTMAX_AXIS = Defect(
    "softmax-axis",
    "warning",
    "Attention cannot choose among what it sums: the weights do not add up to 1.",
    explains=("single-token-attention",),
    shown_by=Evidence("experiment", "weighted sums were repeated with values of 1, and with softmax over each axis"),
)
_PROBABILITIES = ("softmax", "log_softmax", "gumbel_softmax", "sigmoid", "log", "logsigmoid", "one_hot")


def softmax_axis(subject: Subject) -> Iterator[Finding | str | NotLookedAt]:
    """Repeats each sum whose weights are a softmax, with values of 1: it must give 1 everywhere.

    Where it does so only with the softmax over another axis, the weights should be normalised over that one. Soft
    assignments are left alone: their softmax goes over the outputs of a layer (clusters, classes, experts), and they
    may be summed over samples. Scores that compare two things (q · k, or a layer with one output) are none. Also left
    alone are weights that are divided by their sum later or are right in another sum, and routing, which begins with
    scores that do not come from data and then sums the same values again.
    """
    num_right, places, softmaxes = 0, set(), list(_first_calls(subject.step()))
    for softmax in softmaxes:
        if any(softmax.adds_up(item, softmax.axis) for item in softmax.sums):
            num_right += 1
            continue
        better = _better_axis(softmax, num_samples(subject.batches[0]))
        place = _line(subject, softmax)
        if better is not None and place not in places:
            places.add(place)
            yield _finding(softmax, *better, place)
    if any(map(_is_masked, softmaxes)):
        yield NotLookedAt(SOFTMAX_AXIS, "weights are masked after their softmax: what is left of them adds up to less")
    elif num_right and not places:
        yield "softmax weights add up to 1 along the axis of their sum"


PROBE = Probe(look=softmax_axis, defects=(SOFTMAX_AXIS,), is_light=True)


def _is_masked(softmax: Softmax) -> bool:
    """Whether a call leaves out some of the weights; dropout scales up the others."""
    for taker in softmax.step.record.takers(softmax.op.out):
        masks = [leaf for leaf in taker.inputs if leaf is not softmax.op.out and not leaf.requires_grad]
        is_product = taker.name in TIMES and any(map(is_binary, masks))
        if is_product or taker.name in ("masked_fill", "masked_fill_", "where"):
            return True
    return False


def _first_calls(step: Step) -> Iterator[Softmax]:
    """The first softmax of each line, and the first that weighs the same values."""
    lines, summed = set(), set()
    for op in step.record.named("softmax"):
        if not op.direct or not isinstance(op.out, Tensor):
            continue
        softmax = Softmax(step, op)
        leaves = [leaf for item in softmax.sums for leaf in item.values]
        values = {(id(step.record.origin(leaf, SHAPE_ONLY | {"detach"})), softmax.shape) for leaf in leaves}
        if op.places not in lines and summed.isdisjoint(values):
            yield softmax
        lines.add(op.places)
        summed |= values


def _better_axis(softmax: Softmax, size: int | None) -> tuple[WeightedSum, int] | None:
    """A sum in which weights add up to 1 only with the softmax over another axis, which is surely the right one."""
    if any(softmax.adds_up(item, axis) for item in softmax.own_sums for axis in softmax.others):  # divided by it later
        return None
    pairs = [(item, axis) for item in softmax.sums for axis in softmax.others if softmax.adds_up(item, axis)]
    pairs = [pair for pair in pairs if all(_is_value(softmax, leaf) for leaf in pair[0].values)]
    is_batch = softmax.axis == 0 and softmax.shape[:1] == (size,) != (1,)
    return pairs[0] if pairs and (is_batch or softmax.compares()) else None


def _is_value(softmax: Softmax, leaf: Tensor) -> bool:
    """Whether what is summed is a value from data, and no label or probability, as in a loss."""
    maker = softmax.step.record.producer(leaf, SHAPE_ONLY)
    if maker is not None and maker.name in _PROBABILITIES:
        return False
    if not leaf.is_floating_point() or is_binary(leaf) or not softmax.step.is_from_data(leaf):
        return False
    return id(softmax.op.out) not in softmax.step.record.ancestors(leaf)


def _finding(softmax: Softmax, item: WeightedSum, axis: int, place: Place | None) -> Finding:
    totals = item.of_ones(softmax.op.again({}).nan_to_num())
    assert totals is not None, "the same calls have been repeated before"
    least, most = (f"{total.item():.2g}" for total in totals.aminmax())
    message = (
        f"softmax over axis {softmax.axis} of {tuple(softmax.shape)}, but the weighted sum goes over axis {axis}: "
    )
    message += f"its weights add up to {least}" + (f" … {most}" if least != most else "")
    dim = "-1" if axis == len(softmax.shape) - 1 else str(axis)
    return Finding(SOFTMAX_AXIS, place, message, f"softmax(dim={dim})  # over what is summed", {"axis": dim})


def _line(subject: Subject, softmax: Softmax) -> Place | None:
    """The line of `dim`: that of a layer is where the layer is made."""
    layer = softmax.op.module
    return (origins.layer(subject.model, layer) if isinstance(layer, nn.Softmax) else None) or softmax.op.place
