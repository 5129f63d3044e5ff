"""Labels of sequences: is any of them learnt, and are prompts and padding left out."""

import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from playbook.doctor import replay
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.losses import Loss
from playbook.doctor.probes.padding import _filler
from playbook.doctor.probes.sequence import _shift
from playbook.doctor.record import Record, tensors
from playbook.doctor.steps import supervised
from playbook.doctor.subject import Subject

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
DEFECTS = (NO_SUPERVISED_TOKENS, PROMPT_IN_LOSS, PADDING_IN_LOSS)
_MOST = 0.5  # of the batches' samples, which have no label; of the prompt's places, which have one
_PADDING = 0.05  # of all labels
_PROMPT = re.compile(r"prompt|context|source|instruction", re.IGNORECASE)


def supervision(subject: Subject) -> Iterator[Finding | str]:
    """Counts labels that are not ignored, and looks where the gradient of the loss moves the scores of a sequence.

    A batch without any label is a defect if its loss is nan, as the mean over none is, or if more than half of the
    batches are so; samples without any, if they are more than half. A language model learns its prompts if the batch
    has a mask that marks them (both of its values stand over several tokens) or their length, if the step reads
    neither, and if scores in both parts have a gradient. It learns padding if more than 5 % of the labels with a
    gradient are the filler that rows end with, the first of each left out: it may end the text.
    """
    empty = nan = rows_without = rows = 0
    example: tuple[Loss, int] | None = None
    for step in subject.steps():
        for loss in step.losses:
            if loss.kind != "classes" or loss.target.is_floating_point() or loss.target.numel() < 2:
                continue
            ignored = loss.op.argument(4, "ignore_index", -100)
            counts = loss.target != ignored
            if not counts.any():
                empty += 1
                nan += step.loss is not None and not bool(torch.isfinite(step.loss).all())
                example = loss, ignored
            for module_read in _sequences(step.record):
                if counts.numel() in (module_read.numel(), module_read.numel() - len(module_read)):
                    by_row = counts.reshape(len(module_read), -1).any(1)
                    rows, rows_without = rows + len(by_row), rows_without + int((~by_row).sum())
                    example = example or ((loss, ignored) if not by_row.all() else None)
                    break
            break
    number = len(subject.batches)
    if example is not None and (nan or empty > _MOST * number or rows_without > _MOST * max(rows, 1)):
        loss, ignored = example
        place = _all_ignored(subject, ignored) or loss.op.place
        what = f"{empty} of {number} batches" if empty else f"{rows_without} of {rows} samples"
        message = f"{what} have no supervised label: every target is {ignored}" + (", the loss is nan" if nan else "")
        fix = "assert (labels != -100).any(), 'the prompt fills the context'  # cut the prompt, not the answer"
        yield Finding(NO_SUPERVISED_TOKENS, place, message, fix)
        return
    yield from _parts(subject)


def _parts(subject: Subject) -> Iterator[Finding | str]:
    batch = subject.batches[0]
    step = subject.backward(batch)
    for loss in step.losses:
        moved = supervised(step, loss)
        read = next((leaf for leaf in _sequences(step.record) if _shift(leaf, loss)[1] == 1), None)
        if moved is None or read is None:
            continue
        moved, target = moved.reshape(len(read), -1), loss.target.reshape(len(read), -1)  # (B, T)
        name, share = _prompt(batch, step.record, step.loss, moved, target)
        if name is not None:
            message = f"{share:.0%} of the places that {name} marks as prompt have a gradient, and no loss reads it"
            fix = "labels = labels.masked_fill(~is_answer, -100)"
            yield Finding(PROMPT_IN_LOSS, loss.op.place, message, fix)
        filler = _filler(target)
        if filler is not None and _filler(F.pad(read, (0, 1), value=filler)) != filler:
            filler = None  # a token like others, which the text has before its end as well
        is_filler = target == filler if filler is not None else torch.zeros_like(moved)
        learnt = moved & is_filler & is_filler.roll(1, 1)
        learnt[:, 0] = False
        if (share := learnt.sum().item() / max(int(moved.sum()), 1)) > _PADDING:
            message = f"{share:.0%} of the labels with a gradient are padding ({filler})"
            fix = f"loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index={filler})"
            yield Finding(PADDING_IN_LOSS, loss.op.place, message, fix)
        elif name is None:
            yield "prompts and padding are not in the loss"
        return


def _sequences(record: Record) -> list[Tensor]:
    """Tokens (B, T) that modules read."""
    read = [leaf for _, arguments, _ in record.calls for leaf in tensors(arguments)]
    return [leaf for leaf in read if leaf.dim() == 2 and leaf.dtype == torch.int64 and leaf.shape[1] > 1]


def _prompt(
    batch: Any, record: Record, value: Tensor | None, moved: Tensor, target: Tensor
) -> tuple[str | None, float]:
    """What marks a prompt that is learnt, and the share of it that is."""
    used = record.ancestors(value) if value is not None else set()
    length = moved.shape[1]
    for path, leaf in pytree.tree_flatten_with_path(batch)[0]:
        if not isinstance(leaf, Tensor) or id(leaf) in used or len(leaf) != len(moved) or leaf.is_floating_point():
            continue
        name = pytree.keystr(path)
        if leaf.dim() == 1 and _PROMPT.search(name) and int(leaf.min()) > 0 and int(leaf.max()) <= length:
            prompt = torch.arange(1, length + 1) < leaf[:, None]
            answer = ~prompt
        elif leaf.dim() == 2 and leaf.shape[1] - length in (0, 1) and leaf.unique().tolist() == [0, 1]:
            marked = (leaf != leaf[:, :1])[:, leaf.shape[1] - length :]
            prompt, answer = marked.cumsum(1) == 0, marked
        else:
            continue
        sides = [moved & prompt, moved & answer]
        several = all(bool(side.any()) and target[side].unique().numel() > 2 for side in sides)  # padding is one value
        share = sides[0].sum().item() / max(int(prompt.sum()), 1)
        if several and share > _MOST:
            return name, share
    return None, 0.0


def _all_ignored(subject: Subject, ignored: int) -> Place | None:
    return replay.first_line(
        subject, lambda array, _: array.size > 1 and array.dtype.kind == "i" and bool((array == ignored).all())
    )
