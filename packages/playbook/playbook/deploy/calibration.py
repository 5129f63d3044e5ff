"""The training samples that set the ranges of activations, and warnings where samples are few."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from playbook.batches import num_samples
from playbook.deploy.formats import first_line, quiet
from playbook.deploy.program import Inputs, Program

NUM_CALIBRATED = 512  # samples that the ranges of activations are taken from
ENOUGH = 100  # samples, from which on ranges and agreement are not left to chance
MOST_BYTES = 2**29  # of these samples, where there are enough of them


@dataclass(frozen=True)
class Calibration:
    """Inputs whose activations set the ranges.

    Args:
        split: train, or val where no training samples could be had.
        batches: as the program takes them.
    """

    split: str
    batches: list[Inputs]

    @property
    def num_samples(self) -> int:
        return count(self.batches)


def calibration_of(program: Program, model: Any, datamodule: Any) -> Calibration:
    """Training samples; where there are none that the program takes, a line says so and validation samples are used.

    Args:
        program: with validation samples.
        model: which may have its own data.
        datamodule: its data; None if the model has its own.
    """
    try:
        with _seeded():
            batches = _first(_training_batches(program, model, datamodule))
    except Exception as error:  # of any kind, in the user's data: validation samples are there
        reason = first_line(error)
    else:
        if batches:
            return Calibration("train", batches)
        reason = "there are no training samples"
    text = f"the ranges of activations come from validation samples, which also judge them: {reason}"
    print(f"warning: --quantize int8-static: {text}", file=sys.stderr)
    return Calibration("val", _first(iter(program.batches)))


def warn_of_few(program: Program, kind: str, calibration: Calibration | None) -> None:
    """Says where fewer than `ENOUGH` samples set the ranges or judge the result."""
    noun = "images" if all(len(shape) == 4 for shape in program.shapes.values()) else "samples"
    if calibration is not None and calibration.num_samples < ENOUGH:
        split = {"train": "training", "val": "validation"}[calibration.split]
        _warn(kind, f"{calibration.num_samples} {split} {noun} set the ranges of activations")
    if (num_judged := count(program.batches)) < ENOUGH:
        _warn(kind, f"{num_judged} validation {noun} judge the result")


def count(batches: list[Inputs]) -> int:
    """Number of samples in batches."""
    return sum(map(num_samples, batches))


def _warn(kind: str, text: str) -> None:
    print(f"warning: --quantize {kind}: only {text}, expected at least {ENOUGH}", file=sys.stderr)


def _training_batches(program: Program, model: Any, datamodule: Any) -> Iterator[Inputs]:
    if datamodule is not None:
        datamodule.setup("fit")
    for batch in (model if datamodule is None else datamodule).train_dataloader():
        inputs = program.read(batch)
        for name, shape in program.shapes.items():
            inputs[name] = _without_members(inputs[name], shape)
            own = inputs[name].shape
            if len(own) != len(shape) or any(isinstance(b, int) and a != b for a, b in zip(own, shape, strict=True)):
                raise ValueError(f"{name} of a training batch has the shape {tuple(own)}, the program takes {shape}")
        yield {name: inputs[name] for name in program.shapes}


def _without_members(value: Tensor, shape: Sequence[int | str]) -> Tensor:
    """Inputs (B, …); members of an ensemble may each have rows of their own in training, (B, k, …)."""
    has_members = value.ndim == len(shape) + 1 and list(value.shape[2:]) == shape[1:]
    return value.flatten(0, 1) if has_members else value  # (B k, …)


def _first(batches: Iterator[Inputs]) -> list[Inputs]:
    taken: list[Inputs] = []
    num_bytes = 0
    for inputs in batches:
        taken.append(inputs)
        num_bytes += sum(value.nbytes for value in inputs.values())
        if count(taken) >= (ENOUGH if num_bytes > MOST_BYTES else NUM_CALIBRATED):
            break
    return taken


@contextmanager
def _seeded() -> Iterator[None]:
    """The same samples at every export, also of loaders that shuffle by torch's global generator."""
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        yield
