"""Losses whose decrease teaches nothing, or the opposite."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from src.doctor import sandbox
from src.doctor.batches import first
from src.doctor.findings import Finding, Place
from src.doctor.goals import Goal, goals
from src.doctor.losses import SHAPE_ONLY, losses
from src.doctor.record import Record, tensors
from src.doctor.subject import Subject
from src.doctor.training import budget

IDS = ("loss-not-decreasing",)

_OPPOSED = -0.5
_RANDOM = ("randn", "randn_like", "normal", "normal_")  # a mean of zero, so that it is no label with some noise
_MIXING = ("__getitem__", "index_select", "roll", "flip", "gather", "sort", "argsort", "take_along_dim")
_STUCK, _LEARNED = 0.65, 0.4
_SAMPLES, _STEPS, _LR = 8, 150, 3e-3


def overfit(subject: Subject) -> Iterator[Finding | str]:
    """Asks whether the loss leads to the labels.

    1. The gradient of the loss at the prediction, against that of the plain loss (cross-entropy, squared error): a
       cosine below −0.5 on every batch is a wrong sign (clean programs: above −0.05). So it is, also without labels in
       the batch, if all means of losses of torch's in the step are to rise.
    2. The gradients of all parameters are zero on every batch: a constant loss. Or the target is noise drawn in the
       step, which the prediction was not made of: it can only learn the mean. Or the target is the batch's labels in
       another order, and no call that reorders was on the way to the prediction, as it is in MixUp.
    3. Adam at 3e-3 on 8 samples, 150 steps, without dropout: the loss stays above 0.65 of the first (clean: below
       0.5), while the plain loss in its place falls below 0.4. Without the second half nothing is said: then it is the
       model or the data that sets the limit.
    Steps with several optimizers, or whose loss is random without dropout, are only asked 1 and 2, or nothing.
    """
    if len(subject.trainer.optimizers) != 1 or not subject.batches:
        return
    if (constant := _constant(subject)) is not None:
        yield constant
        return
    if (noise := _noise(subject) or _reordered(subject)) is not None:
        yield noise
        return
    opposed = _opposed(subject, subject.batches[0])
    if opposed is not None and all(_opposed(subject, batch) is not None for batch in subject.batches[1:3]):
        cosine, place, name = opposed
        message = "the loss leads away from the labels: "
        message += f"its gradient at the prediction has cosine {cosine:.2f} with that of {name}"
        yield Finding("loss-not-decreasing", place, message, "return -loss  # the other sign")
        return
    if (risen := _rising(subject)) is not None:
        yield risen
        return
    if (stuck := _stuck(subject)) is not None:
        yield stuck
        return
    yield "the loss leads towards the labels, as far as the step has such"


def _backward(subject: Subject, batch: Any) -> tuple[Record, Tensor | None, dict[int, Tensor]]:
    """A recorded step with its loss and the gradient at every tensor of it, by identity."""
    grads: dict[int, Tensor] = {}
    subject.model.zero_grad()  # an optimizer's step inside the training step leaves weights without gradients alone
    if subject.model.automatic_optimization:
        record, loss = subject.recorded(batch)
        _catch(record, grads)
        if loss is not None and loss.requires_grad:
            loss.sum().backward()
        return record, loss, grads
    kept: list[Tensor] = []
    subject.model.manual_backward = lambda loss, *_, **__: kept.append(loss)
    record, _ = subject.recorded(batch)
    del subject.model.manual_backward
    _catch(record, grads)
    if kept and kept[0].requires_grad:
        kept[0].sum().backward()
    return record, kept[0] if kept else None, grads


def _catch(record: Record, grads: dict[int, Tensor]) -> None:
    leaves = {id(leaf): leaf for op in record.ops for leaf in (*op.inputs, *op.outputs) if leaf.requires_grad}
    for key, leaf in leaves.items():
        leaf.register_hook(lambda grad, key=key: grads.__setitem__(key, grad.detach()))


def _constant(subject: Subject) -> Finding | None:
    """A finding if no parameter gets a gradient other than zero, on any batch."""
    record = None
    for batch in subject.batches[:4]:
        record, loss, grads = _backward(subject, batch)
        if loss is None or not loss.requires_grad or not grads:
            return None
        single = any(item.kind == "classes" and item.num_classes == 1 for item in losses(record))
        if not single and not float(loss.detach().abs().sum()):
            return None  # nothing left to learn, or a share that begins at zero
        reached = [grads[id(p)] for p in subject.model.parameters() if p.requires_grad and id(p) in grads]
        if not reached or any(bool(grad.any()) for grad in reached):
            return None
    assert record is not None
    found = losses(record)
    place = found[-1].op.place if found else _last_line(record)
    message = "the loss is constant: the gradient of every parameter is exactly zero on every batch"
    return Finding(
        "loss-not-decreasing",
        place,
        message,
        "# compute the loss of logits that differ: not over a dimension of size 1, not clamped",
    )


def _noise(subject: Subject) -> Finding | None:
    """A finding if the target is random numbers that the step draws, and the prediction is made without them."""
    record, _ = subject.recorded(subject.batches[0])
    for loss in losses(record):
        if loss.kind != "regression" or loss.prediction.dim() == 0:
            continue
        drawn = record.producer(loss.target, SHAPE_ONLY)
        if drawn is None or drawn.name not in _RANDOM or drawn.out is None:
            continue
        if id(drawn.out) not in record.ancestors(loss.prediction):
            message = f"the target is what {drawn.name} drew in this step, and the prediction is made without it"
            return Finding(
                "loss-not-decreasing", loss.op.place, message, "# add the same noise to the input that is to be learned"
            )
    return None


def _reordered(subject: Subject) -> Finding | None:
    """A finding if the target of a loss is the labels of the batch in another order than the prediction."""
    place, name = None, ""
    for batch in subject.batches[:3]:
        record, _ = subject.recorded(batch)
        labels = [leaf.detach() for leaf in tensors(batch) if leaf.dim() == 1]
        found = [loss for loss in losses(record) if any(_is_shuffled(loss.target, label) for label in labels)]
        mixing = [op for op in record.named(*_MIXING) if op.name != "__getitem__" or _picks(op.argument(1, "index"))]
        mixed = {id(out) for op in mixing for out in op.outputs}
        found = [loss for loss in found if not mixed.isdisjoint(record.ancestors(loss.target))]
        found = [loss for loss in found if mixed.isdisjoint(record.ancestors(loss.prediction))]
        if not found:
            return None
        maker = next((op for op in mixing if id(found[0].target) in {id(out) for out in op.outputs}), found[0].op)
        place, name = maker.place, found[0].op.name
    message = f"{name} compares the predictions with the labels of other samples: they are in another order"
    return Finding("loss-not-decreasing", place, message, "# predictions and labels in one order")


def _is_shuffled(target: Tensor, label: Tensor) -> bool:
    if target.shape != label.shape or len(label) < 4 or torch.equal(target.detach().to(label.dtype), label):
        return False
    return torch.equal(target.detach().to(label.dtype).sort().values, label.sort().values)


def _picks(index: Any) -> bool:
    return any(leaf.dim() > 0 for leaf in tensors(index))


def _opposed(subject: Subject, batch: Any) -> tuple[float, Place | None, str] | None:
    """The cosine, the line and the plain loss's name, if the loss is opposed to every label of the batch."""
    record, loss, grads = _backward(subject, batch)
    subject.model.zero_grad()
    if loss is None:
        return None
    seen = []
    leaves = [leaf for leaf in tensors(batch) if leaf.dim() > 0]
    for goal in goals(record, batch):
        by_hand = not any(item.op is goal.op for item in losses(record))
        if by_hand and len(leaves) > 2:  # weights of samples, as advantages, may be negative
            continue
        prediction = goal.prediction
        if id(prediction) not in grads:
            continue
        value = prediction.detach().clone().requires_grad_()
        with torch.enable_grad():
            (plain,) = torch.autograd.grad(goal.plain(value).sum(), value)
        cosine = torch.nn.functional.cosine_similarity(
            plain.flatten().double(), grads[id(prediction)].flatten().double(), dim=0
        )
        seen.append((float(cosine), goal))
    if not seen or not max(cosine for cosine, _ in seen) < _OPPOSED:
        return None
    cosine, goal = seen[-1]
    return (
        cosine,
        _sign(record, goal),
        {"classes": "cross-entropy", "binary": "binary cross-entropy"}.get(goal.kind, "the squared error"),
    )


def _rising(subject: Subject) -> Finding | None:
    """A finding if the step's loss falls as all the losses of torch's that it is made of rise, on every batch."""
    record, op = None, None
    for batch in subject.batches[:3]:
        record, _, grads = _backward(subject, batch)
        means = {id(loss.op.out): loss.op for loss in losses(record) if _scalar(loss.op.out)}
        signs = [float(grads[key]) for key in means if key in grads]
        if not signs or max(signs) >= 0:
            return None
        op = list(means.values())[-1]
    if record is None or op is None:
        return None
    message = f"the loss falls as {op.name} rises"
    negated = [item for item in record.named("neg", "__neg__", "mul", "rsub", "__rsub__") if _scalar(item.out)]
    place = negated[-1].place if negated else op.place
    return Finding("loss-not-decreasing", place, message, "return loss  # the other sign")


def _sign(record: Record, goal: Goal) -> Place | None:
    """The line of the last call that the loss is made of: where its sign is decided."""
    negated = [
        op
        for op in record.named("neg", "__neg__", "mul", "rsub", "sub", "__rsub__", "__sub__")
        if op.out is not None and _scalar(op.out)
    ]
    if negated and any(item.op is goal.op for item in losses(record)):
        return negated[-1].place
    return goal.op.place if any(item.op is goal.op for item in losses(record)) else _last_line(record)


def _scalar(out: Any) -> bool:
    return isinstance(out, Tensor) and out.dim() == 0 and out.requires_grad


def _last_line(record: Record) -> Place | None:
    """The line of the reduction that makes the loss."""
    scalars = [op for op in record.ops if op.direct and _scalar(op.out) and op.name not in ("detach", "log")]
    return scalars[-1].place if scalars else None


def _stuck(subject: Subject) -> Finding | None:
    """A finding if 8 samples cannot be learned by the user's loss, but by the plain one."""
    if not subject.model.automatic_optimization:
        return None
    batch = subject.batches[0]
    batch = first(batch, _SAMPLES) or batch
    for module in subject.model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        loss = subject.train(batch)
        found.append(float(loss.detach()) if loss is not None and loss.dim() == 0 else 0.0)
    if min(found) <= 0 or abs(found[0] - found[1]) > 1e-4 * found[0]:
        return None
    start, last = sandbox.call(lambda: _learn(subject, batch, plain=False), 10.0)
    if not last > _STUCK * start:
        return None
    plain_first, plain_last = sandbox.call(lambda: _learn(subject, batch, plain=True), 10.0)
    if not 0 <= plain_last < _LEARNED * plain_first:
        return None
    record, _ = subject.recorded(batch)
    found = goals(record, batch)
    message = f"8 samples cannot be learned: after {_STEPS} steps of Adam the loss is {last / start:.2f} of the first, "
    message += f"where the plain loss reaches {plain_last / plain_first:.2f}"
    place = found[-1].op.place if found else _last_line(record)
    return Finding(
        "loss-not-decreasing",
        place,
        message,
        "loss = F.cross_entropy(self(x), y)  # prediction and labels of the same samples",
    )


def _learn(subject: Subject, batch: Any, plain: bool) -> tuple[float, float]:
    """The first loss and the mean of the last few."""
    weights = [parameter for parameter in subject.model.parameters() if parameter.requires_grad]
    optimizer, values, is_spent = torch.optim.Adam(weights, lr=_LR), list[float](), budget(2.5)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        if plain:
            record, _ = subject.recorded(batch)
            found = goals(record, batch)
            if not found:
                return 0.0, 1.0
            loss = torch.stack([goal.plain(goal.prediction).sum() for goal in found]).sum()
        else:
            torch.manual_seed(0)
            loss = subject.train(batch)
        if loss is None:
            return 0.0, 0.0
        loss.backward()
        optimizer.step()
        values.append(float(loss.detach()))
        if len(values) > 3 and max(values[-3:]) < (_LEARNED if plain else _STUCK) * values[0]:  # it learns
            return values[0], values[-1]
        if is_spent():
            return values[0], min(values) if plain else (sum(values[-5:]) / 5 if len(values) > 60 else 0.0)
    return values[0], sum(values[-5:]) / 5
