"""Test samples worth a look: those that a task ranks first, drawn or in words, with their ids."""

import inspect
import os
import sys
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from playbook.insight.report.blocks import Block, Gallery, Table, Text
from playbook.insight.report.thumbnails import beside, source
from playbook.runs.outputs import plain
from playbook.runs.predictions import canvas, inputs_of

MOST_SHOWN = 12  # of each ranking
WIDE = 1.6  # width by height of a picture that needs more room, such as a chart
MOST_VALUES = 2  # of its metrics below a picture; a table has all
MOST_CHARACTERS = 500  # of a text in a row
MOST_WORDS = 200  # characters of a text below a picture
MOST_SHARES = 4  # of the classes of a mask
FIRST = "First test samples"
UNTESTED = "First samples of predict, as there was no test"
BUG = "Pictures are missing"


def blocks(
    trainer: Any,
    model: Any,
    facts: Mapping[str, Any],
    rankings: Mapping[str, Tensor],
    measured: Mapping[str, Tensor] | None = None,
) -> list[Block]:
    """Pictures or rows of the first test samples and of those that rank first; without a test, of what is predicted.

    Args:
        trainer: after the test.
        model: whose predict_step and answer are asked, and draw and target_answer if it has them.
        facts: values learnt from the training data.
        rankings: numbers of all test samples (N,), by title; the largest are shown, -inf never.
        measured: metrics of all test samples (N,), by name, to show beside their answers; there may be more values
            than samples, such as those of nodes, which are not shown.
    """
    title, dataset, tested, collate, names = _shown_data(trainer)
    if dataset is None or not callable(getattr(model, "answer", None)):
        return []
    chosen = {title: list(range(min(MOST_SHOWN, len(dataset))))}
    data: Any = getattr(trainer, "datamodule", None)
    notes: list[Block] = []
    if rankings and (trainer.world_size > 1 or getattr(data, "skipped_samples", ())):
        cause = "the test ran in several processes" if trainer.world_size > 1 else "samples were skipped"
        notes = [Text(f"No samples by {', '.join(rankings)}: {cause}, so that results have other places than samples.")]
        rankings, measured = {}, None
    for ranking, values in rankings.items():
        order = values.float().argsort(descending=True, stable=True)[:MOST_SHOWN].tolist()
        chosen[ranking] = [index for index in order if index < len(dataset) and values[index] != -torch.inf]
    faults: dict[str, None] = {}  # in their order
    for heading, indices in chosen.items():
        if indices:
            block, fault = _block(
                heading, indices, names, dataset, tested, collate, trainer, model, facts, measured or {}
            )
            notes.append(block)
            faults |= {fault: None} if fault else {}
    for fault in faults:
        if fault.startswith(BUG):
            print(f"warning: the report is incomplete: {fault}", file=sys.stderr)
    return notes + [Text(fault) for fault in faults]


def _block(
    title: str,
    indices: Sequence[int],
    names: Sequence[Any],
    dataset: Any,
    tested: Any,
    collate: Any,
    trainer: Any,
    model: Any,
    facts: Mapping[str, Any],
    measured: Mapping[str, Tensor],
) -> tuple[Block, str]:
    """Pictures or rows of some samples, and why there are no pictures, empty if there need be none."""
    data: Any = getattr(trainer, "datamodule", None)
    samples = {}
    for index in indices:
        try:
            samples[index] = dataset[index]
        except Exception:  # counted when it was skipped in the test
            if getattr(data, "on_error", "stop") != "skip":
                raise
    if not samples:
        return Text(f"{title}: none of them can be loaded."), ""
    indices = list(samples)
    batch = labelled = collate(list(samples.values()))
    targets: list[dict[str, Any]] | None = None
    if tested is not None and callable(getattr(model, "target_answer", None)):
        if tested is not dataset:  # what predict takes has no masks and no boxes
            labelled = collate([tested[index] for index in indices])
        targets = model.target_answer(labelled, facts)
    batch = model.transfer_batch_to_device(batch, model.device, 0)
    training = model.training
    model.eval()
    with torch.no_grad(), trainer.precision_plugin.predict_step_context():
        step = getattr(model, "example_step", None)
        outputs = step(batch) if callable(step) else model.predict_step(batch, 0)
        answers = model.answer(outputs, facts, **_shortest(model.answer))
    model.train(training)
    ids = [str(names[index]) if index < len(names) else str(index) for index in indices]
    values = [
        {metric: float(column[index]) for metric, column in measured.items() if index < len(column) <= len(dataset)}
        for index in indices
    ]
    shown_values = [dict(list(own.items())[:MOST_VALUES]) for own in values]
    rows = [{"id": name, **own, **_row(answer)} for name, own, answer in zip(ids, values, answers, strict=True)]
    for row, target in zip(rows, targets or [], strict=False):
        row |= {f"target {name}": value for name, value in _row(target).items()}
    if not callable(getattr(model, "draw", None)):
        return Table(title, rows), ""
    pictures = []
    is_wide = False
    for number, (index, name, answer) in enumerate(zip(indices, ids, answers, strict=True)):
        words = ", ".join(filter(None, [_words(answer), _words(shown_values[number])]))
        try:
            picture = model.draw(canvas(data, dataset, index, inputs_of(batch, number)), answer)
            if targets is not None:
                picture = beside(picture, model.draw(inputs_of(labelled, number), targets[number]))
                words = f"{words}; on the right, the target: {_words(targets[number]) or 'nothing'}"
        except Exception as error:  # a user's method may raise anything
            return Table(title, rows), _undrawn(error)
        is_wide = is_wide or picture.width > WIDE * picture.height
        pictures.append((source(picture), ": ".join(filter(None, [name, words]))))
    return Gallery(title, pictures, is_wide), ""


def _undrawn(error: Exception) -> str:
    """Why answers are not drawn. A ValueError speaks of inputs that are no pictures; any other error is a bug."""
    if isinstance(error, ValueError):
        return f"Answers are not drawn: {error}."
    place = traceback.extract_tb(error.__traceback__)[-1]
    told = f"{type(error).__name__}: {error} ({os.path.relpath(place.filename)}:{place.lineno})"
    return f"{BUG}, as draw raised {told}."


def _shortest(answer: Any) -> dict[str, int]:
    """The option for one class where `answer` may name several."""
    return {"top": 1} if "top" in inspect.signature(answer).parameters else {}


def test_ids(trainer: Any) -> Sequence[Any]:
    """The ids of the test samples, empty where the data has none."""
    data: Any = getattr(trainer, "datamodule", None)
    dataset = getattr(data, "test_set", None)
    if dataset is None or not callable(getattr(data, "ids", None)):
        return []
    return data.ids(dataset) or []


def _shown_data(trainer: Any) -> tuple[str, Any, Any, Any, Sequence[Any]]:
    """Title, data set, the tested one with the targets of its samples, what makes a batch of them, and their ids.

    The test set, in the form that `predict` takes where the data has one; without a test, what `predict` takes.
    """
    data: Any = getattr(trainer, "datamodule", None)
    tested, predicted = getattr(data, "test_set", None), getattr(data, "predict_set", None)
    collate = getattr(data, "collate", None) or default_collate
    if tested is not None:
        names = test_ids(trainer)
        is_same = names and predicted is not None and len(predicted) == len(tested) and data.ids(predicted) == names
        return FIRST, predicted if is_same else tested, tested, collate, names
    if predicted is not None:
        names = data.ids(predicted) if callable(getattr(data, "ids", None)) else None
        return UNTESTED, predicted, None, collate, names or []
    loader = trainer.test_dataloaders
    dataset = getattr(loader, "dataset", None)
    is_indexed = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    return (FIRST, dataset, dataset, loader.collate_fn, []) if is_indexed else (FIRST, None, None, None, [])


def _row(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cell(name, value) for name, value in answer.items()}


def _cell(name: str, value: Any) -> Any:
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        return f"{value[:MOST_CHARACTERS]} …"
    if isinstance(value, int | float | str):
        return value
    return _words({name: value}) or (f"{len(value):,} {name}" if isinstance(value, list) else "")


def _words(answer: Mapping[str, Any]) -> str:
    parts = []
    for name, value in [(name, value) for name, value in answer.items() if not isinstance(value, Tensor)][:6]:
        plain_value = plain(value)
        if isinstance(plain_value, float):
            parts.append(f"{name} {plain_value:.3g}")
        elif isinstance(plain_value, list):
            entries = [entry for entry in plain_value if isinstance(entry, dict)]
            classes = Counter(entry["class"] for entry in entries if "class" in entry)
            parts += [f"{count} × {kind}" for kind, count in classes.items()]
            if not entries:  # those without a class, such as the steps of a forecast, are in the picture alone
                parts.append(f"{len(plain_value)} {name}")
        elif isinstance(plain_value, dict):
            shares = {key: share for key, share in plain_value.items() if isinstance(share, float)}
            largest = sorted(shares, key=shares.__getitem__, reverse=True)[:MOST_SHARES]
            parts += [f"{key} {shares[key]:.0%}" for key in largest if shares[key] >= 0.005]
        else:
            text = str(plain_value)
            parts.append(f"{name} {text if len(text) <= MOST_WORDS else f'{text[:MOST_WORDS]} …'}")
    return ", ".join(parts)
