"""Compares an exported program with the module that it was made from, on real inputs and by the task's metrics."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor, nn

from playbook.batches import num_samples
from playbook.deploy.formats import quiet
from playbook.deploy.program import Inputs, Program
from playbook.deploy.runtime.engines import Engine
from playbook.errors import UserError

SIZES = (1, 2, 3)  # of batches, in addition to those of the data
DECISIONS = ("logits", "scores", "probability")  # outputs whose largest value along the classes decides
CONFIDENT = 0.25  # score of a box, in [0, 1], below which its class decides nothing


class Inexact(UserError):  # noqa: N818  # an adjective, as the error is the program's
    """An exported program that differs from its model by more than the user allows."""


@dataclass
class Tolerance:
    """What an exported program may differ by.

    Args:
        error: largest difference of an output, as a share of the largest output; None for no limit.
        agreement: least share of equal decisions, in [0, 1].
        drop: largest loss of the metric that selects the best checkpoint, as a share of it.
    """

    error: float | None = 1e-3
    agreement: float = 0.999
    drop: float = 0.005


@dataclass
class Parity:
    """Differences between the program and the module.

    Args:
        max_error: largest absolute difference of an output.
        mean_error: mean absolute difference.
        scale: largest absolute output of the module.
        agreement: share of equal decisions; None if no output decides.
        samples: of the validation set that were compared.
        cases: sizes of the dimensions that vary in the compared batches, with the largest error.
        metrics: each metric on the validation set, by the module and by the program.
        monitor: the metric that selects the best checkpoint, if it was measured.
    """

    max_error: float = 0.0
    mean_error: float = 0.0
    scale: float = 0.0
    agreement: float | None = None
    samples: int = 0
    cases: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, tuple[float, float]] = field(default_factory=dict)
    monitor: str | None = None
    mode: str = "min"

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    def fault(self, tolerance: Tolerance) -> str | None:
        """What exceeds the tolerance, or None."""
        if not np.isfinite(self.max_error):
            return "outputs are not finite where those of the model are"
        if tolerance.error is not None and self.max_error > tolerance.error * max(self.scale, 1e-6):
            return (
                f"outputs differ by up to {self.max_error:.3g}, {self.max_error / max(self.scale, 1e-6):.2g} of the "
                f"largest; --tolerance allows {tolerance.error:g}"
            )
        if self.agreement is not None and self.agreement < tolerance.agreement:
            return f"{self.agreement:.2%} of the decisions agree; --min_agreement asks for {tolerance.agreement:.2%}"
        if self.monitor is not None:
            before, after = self.metrics[self.monitor]
            loss = (before - after if self.mode == "max" else after - before) / max(abs(before), 1e-12)
            if not loss <= tolerance.drop:  # nan too
                return f"{self.monitor} goes from {before:.4g} to {after:.4g}; --max_drop allows {tolerance.drop:.2%}"
        return None


class Engineered(nn.Module):
    """An engine as a module: tensors by name or in order → a tensor, or a tuple of tensors."""

    def __init__(self, engine: Engine, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.engine = engine
        self.names = list(inputs)
        self.outputs = list(outputs)

    def forward(self, *values: Tensor, **named: Tensor) -> Any:
        inputs = {**dict(zip(self.names, values, strict=False)), **named}
        arrays = self.engine({name: inputs[name].detach().cpu().numpy() for name in self.names})
        tensors = [torch.from_numpy(np.array(arrays[name])) for name in self.outputs]
        return tensors[0] if len(tensors) == 1 else tuple(tensors)


def compare(program: Program, engine: Engine) -> Parity:
    """Outputs on validation batches of several sizes.

    Raises:
        Inexact: the engine refuses a batch, or returns outputs of another shape.
    """
    parity = Parity(samples=sum(map(num_samples, program.batches)))
    errors: dict[tuple[tuple[str, int], ...], float] = {}  # by the sizes
    total = count = agreeing = decisions = 0.0
    for inputs in _cases(program):
        sizes = _sizes(program, inputs)
        expected = program.run(inputs)
        try:
            outputs = engine({name: value.numpy() for name, value in inputs.items()})
        except Exception as error:  # each engine raises its own types
            text = " ".join(str(error).split())
            raise Inexact(f"the exported program fails on a batch of {_in_words(sizes)}: {text}") from error
        worst = 0.0
        for name, wanted in zip(program.outputs, expected, strict=True):
            output = torch.from_numpy(np.array(outputs[name]))
            if output.shape != wanted.shape:
                shapes = f"{tuple(output.shape)}, the model's {tuple(wanted.shape)}"
                raise Inexact(f"the exported program's {name} has the shape {shapes} for {_in_words(sizes)}")
            if not wanted.numel():
                continue
            difference = (output.double() - wanted.double()).abs()
            difference[wanted.isinf() & (output == wanted)] = 0.0
            worst = max(worst, difference.max().nan_to_num(torch.inf).item())
            total, count = total + difference.sum().item(), count + difference.numel()
            finite = wanted[wanted.isfinite()]
            parity.scale = max(parity.scale, finite.abs().max().item() if finite.numel() else 0.0)
            if name in DECISIONS:
                axis = 1 if wanted.ndim == 4 else -1
                same = output.argmax(axis) == wanted.argmax(axis)
                if name == "scores":
                    same = same[wanted.amax(axis) >= CONFIDENT]
                agreeing, decisions = agreeing + same.sum().item(), decisions + same.numel()
        parity.max_error = max(parity.max_error, worst)
        key = tuple(sizes.items())
        errors[key] = max(errors.get(key, 0.0), worst)
    parity.cases = [{**dict(sizes), "max_error": worst} for sizes, worst in errors.items()]
    parity.mean_error = total / max(count, 1)
    parity.agreement = agreeing / decisions if decisions else None
    return parity


def measure(program: Program, datamodule: Any, limit: int | float | None, module: nn.Module | None) -> dict[str, float]:
    """The task's metrics on the validation set.

    Args:
        program: of the task.
        datamodule: its data.
        limit: number or share of batches, as the Trainer's limit_val_batches.
        module: evaluates in place of the net; None for the net itself.
    """
    task: Any = deepcopy(program.task)
    task.use_program(program.reference if module is None else module)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        limit_val_batches=limit,
        inference_mode=True,
    )
    with quiet():
        [results] = trainer.validate(task, datamodule=datamodule, verbose=False)
    return {name: float(value) for name, value in results.items()}


def _cases(program: Program) -> Iterator[Inputs]:
    """Batches as they are, and with 1, 2 and 3 samples; with half of their length where that varies."""
    yield from program.batches
    first = program.batches[-1]
    for size in SIZES:
        yield {name: value[:size].contiguous() for name, value in first.items()}
    if "T" in program.limits:
        yield program.halved(first, "T")


def _sizes(program: Program, inputs: Inputs) -> dict[str, int]:
    return {
        size: inputs[name].shape[place]
        for name, shape in program.shapes.items()
        for place, size in enumerate(shape)
        if isinstance(size, str)
    }


def _in_words(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
