"""Sequence labels that are all ignored, or that include prompts or padding."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from torchdoctor.evidence import replay
from torchdoctor.evidence.samples import train_loaders
from torchdoctor.evidence.tokens import padding_token, target_shift, tokens_read
from torchdoctor.findings import Defect, Evidence, Finding
from torchdoctor.probe import Need, Probe
from torchdoctor.running.losses import Loss
from torchdoctor.running.record import tensors
from torchdoctor.running.steps import Step, supervised_positions
from torchdoctor.running.subject import Subject

NO_SUPERVISED_TOKENS = Defect(
    "no-supervised-tokens",
    "critical",
    "Nothing is learnt from these batches, and the mean over no label is nan.",
    explains=("non-finite", "loss-not-decreasing", "constant-labels"),
    shown_by=Evidence("measured", "the labels of several batches were counted"),
)
_BY_LABEL = Evidence("measured", "the gradient was measured at each label of a batch")
PROMPT_IN_LOSS = Defect(
    "prompt-in-loss",
    "warning",
    "The model learns to write prompts, and less of each step goes into the answers.",
    shown_by=_BY_LABEL,
)
PADDING_IN_LOSS = Defect(
    "padding-in-loss",
    "warning",
    "The model learns to predict padding: the loss falls without the text being learnt.",
    shown_by=_BY_LABEL,
)
_LENGTHS = 3  # different ones of the sequences in a batch


def supervision(subject: Subject, most: float = 0.5, most_padding: float = 0.05) -> Iterator[Finding | str]:
    """Counts labels that are not ignored, and looks where the gradient of the loss moves the scores of a sequence.

    A batch without any label is a defect if its loss is nan, as the mean over none is, or if more than half of the
    batches are so; samples without any, if they are more than half. A language model learns its prompts if the batch
    has a mask that marks them (both of its values stand over several tokens) or their length (the data makes a text of
    that length, with which a sample begins), if the step reads neither, and if scores in both parts have a gradient.
    It learns padding if more than 5 % of the labels with a gradient are the filler that rows end with, the first of
    each left out: it may end the text. So does a model that writes sequences of the batch, if their lengths vary.

    Args:
        subject: the training that has just begun.
        most: share of the samples without a label; of a prompt's places with one.
        most_padding: share of the labels that are padding.
    """
    finding = _without_labels(subject, most)
    yield from [finding] if finding else _parts(subject, most, most_padding)


PROBE = Probe(
    look=supervision,
    defects=(NO_SUPERVISED_TOKENS, PROMPT_IN_LOSS, PADDING_IN_LOSS),
    needs=(Need.BATCHES, Need.ONE_LOSS),
)


def _without_labels(subject: Subject, most: float) -> Finding | None:
    empty, is_nan, rows = 0, False, list[bool]()  # for each row, whether it has a label
    example: Loss | None = None
    for step in subject.steps():
        indices = (loss for loss in step.losses if loss.kind == "classes" and not loss.target.is_floating_point())
        loss = next((loss for loss in indices if loss.target.numel() > 1), None)
        if loss is None:
            continue
        counts = loss.target != _ignored(loss)
        if not counts.any():
            empty += 1
            is_nan |= step.loss is not None and not bool(torch.isfinite(step.loss).all())
        sizes = {read.numel() - cut: len(read) for read in tokens_read(step.record) for cut in (0, len(read))}
        labelled = counts.reshape(sizes.get(counts.numel(), 1), -1).any(1)
        rows += labelled.tolist() if counts.numel() in sizes else []
        example = example or (None if labelled.all() else loss)
    number, rows_without = len(subject.batches), rows.count(False)
    if example is None or not (is_nan or empty > most * number or rows_without > most * max(len(rows), 1)):
        return None
    ignored = _ignored(example)
    what = f"{empty} of {number} batches" if empty else f"{rows_without} of {len(rows)} samples"
    message = f"{what} have no supervised label: every target is {ignored}" + (", the loss is nan" if is_nan else "")
    fix = "assert (labels != -100).any(), 'the prompt fills the context'  # cut the prompt, not the answer"
    place = replay.first_line(
        subject, lambda array, _: array.size > 1 and array.dtype.kind == "i" and bool((array == ignored).all())
    )
    return Finding(NO_SUPERVISED_TOKENS, place or example.op.place, message, fix)


def _ignored(loss: Loss) -> int:
    return loss.op.argument(4, "ignore_index", -100)


def _parts(subject: Subject, most: float, most_padding: float) -> Iterator[Finding | str]:
    step = subject.backward(subject.batches[0])
    for loss in step.losses:
        moved = supervised_positions(step, loss)
        read = next((leaf for leaf in tokens_read(step.record) if target_shift(leaf, loss)[1] == 1), None)
        if moved is not None and read is None:
            yield from _labelled_padding(step, loss, moved, most_padding)
        if moved is None or read is None:
            continue
        moved, target = moved.reshape(len(read), -1), loss.target.reshape(len(read), -1)  # (B, T)
        name, prompt_share = _prompt(subject, step, moved, target, most)
        if name:
            message = (
                f"{prompt_share:.0%} of the places that {name} marks as prompt have a gradient, and no loss reads it"
            )
            fix = "labels = labels.masked_fill(~is_answer, -100)"
            yield Finding(PROMPT_IN_LOSS, loss.op.place, message, fix)
        end = padding_token(target)
        if end is None or padding_token(F.pad(read, (0, 1), value=end)) != end:
            return  # a token like others, which the text has before its end as well
        padded_share = _share_of_padding(moved, target, end)
        if padded_share > most_padding:
            yield _padding(loss, padded_share, end)
        elif not name:
            yield "prompts and padding are not in the loss"
        return


def _labelled_padding(step: Step, loss: Loss, moved: Tensor, most_padding: float) -> Iterator[Finding]:
    """Padding among the labels where these are sequences (B, T) of the batch that end with it, at several lengths."""
    for leaf in tensors(step.batch):
        is_target = leaf.dim() == 2 and leaf.dtype == torch.int64 and torch.equal(leaf.flatten(), loss.target.flatten())
        end = padding_token(leaf) if is_target else None
        if end is None or len((leaf != end).sum(1).unique()) < _LENGTHS:
            continue
        share = _share_of_padding(moved.reshape(leaf.shape), leaf, end)
        if share > most_padding:
            yield _padding(loss, share, end)
        return


def _share_of_padding(moved: Tensor, target: Tensor, end: int) -> float:
    learnt = moved[:, 1:] & (target[:, 1:] == end) & (target[:, :-1] == end)
    return learnt.sum().item() / max(int(moved.sum()), 1)


def _padding(loss: Loss, share: float, end: int | None) -> Finding:
    message = f"{share:.0%} of the labels with a gradient are padding ({end})"
    logits = "logits" if loss.prediction.dim() == 2 else "logits.flatten(0, 1)"
    fix = f"loss = F.cross_entropy({logits}, labels.flatten(), ignore_index={end})"
    return Finding(PADDING_IN_LOSS, loss.op.place, message, fix, {"ignored": str(end)})


def _prompt(subject: Subject, step: Step, moved: Tensor, target: Tensor, most: float) -> tuple[str, float]:
    """What marks a prompt that is learnt, and the share of it that is."""
    used = step.record.ancestors(step.loss) if step.loss is not None else set()
    length = moved.shape[1]
    for path, leaf in pytree.tree_flatten_with_path(step.batch)[0]:
        if not isinstance(leaf, Tensor) or id(leaf) in used or len(leaf) != len(moved) or leaf.is_floating_point():
            continue
        is_length = leaf.dim() == 1 and 1 < int(leaf.min()) <= int(leaf.max()) <= length
        if is_length:
            prompt = torch.arange(1, length + 1) < leaf[:, None]
            answer = ~prompt
        elif leaf.dim() == 2 and leaf.shape[1] - length in (0, 1) and leaf.unique().tolist() == [0, 1]:
            answer = (leaf != leaf[:, :1])[:, leaf.shape[1] - length :]
            prompt = answer.cumsum(1) == 0
        else:
            continue
        sides = [moved & prompt, moved & answer]
        several = all(bool(side.any()) and target[side].unique().numel() > 2 for side in sides)  # padding is one value
        share = sides[0].sum().item() / max(int(prompt.sum()), 1)
        if several and share > most and (not is_length or _is_length_of_text(subject, path)):
            return pytree.keystr(path), share
    return "", 0.0


def _is_length_of_text(subject: Subject, path: Any) -> bool:
    """Whether the data makes a text that the first sample begins with, of the length that stands in it at a path."""
    loaders = train_loaders(subject)
    leaves, _ = pytree.tree_flatten_with_path(loaders[0].dataset[0] if loaders else ())
    numbers = [int(leaf) for key, leaf in leaves if key == path]
    texts = [torch.as_tensor(leaf).numpy() for _, leaf in leaves if isinstance(leaf, Tensor | np.ndarray)]
    begin = [text[:number] for text in texts for number in numbers if text.ndim == 1 and len(text) > number]
    return replay.first_line(subject, lambda array, _: any(np.array_equal(array, part) for part in begin)) is not None
