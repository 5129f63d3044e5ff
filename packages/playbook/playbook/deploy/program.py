"""The tensor part of a task, from the inputs of a batch to the net's outputs, with what may vary in its shapes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from playbook.batches import named_inputs
from playbook.batches import num_samples as count_samples
from playbook.calls import Named, named_call
from playbook.errors import UserError
from playbook.network import evaluation_net

Inputs = dict[str, Tensor]
NUM_BATCHES = 4  # of the validation set, whose shapes tell what varies
LONGEST = 2**31 - 1


@dataclass
class Program:
    """A module that can be exported, with inputs to trace and check it.

    Args:
        task: the task or LightningModule that it belongs to.
        module: takes the inputs by name, or in their order.
        reference: the same before adapters were merged, to compare with.
        batches: inputs of validation batches, on the CPU.
        shapes: dimensions of each input; those that may vary have a name, B for the batch.
        limits: smallest and largest size of each of these; None for no largest.
        outputs: names of the outputs.
        traced_size: samples to trace with; export treats sizes of 0 and 1 as constants.
        read: the inputs in a batch of the data.
    """

    task: pl.LightningModule
    module: nn.Module
    reference: nn.Module
    batches: list[Inputs]
    shapes: dict[str, list[int | str]]
    limits: dict[str, tuple[int, int | None]]
    outputs: list[str]
    traced_size: int = 2
    read: Callable[[Any], Inputs] = dict

    @property
    def example(self) -> Inputs:
        """Inputs to trace with."""
        batch = self.batches[0]
        rows = torch.arange(self.traced_size) % count_samples(batch)
        return {name: value[rows] for name, value in batch.items()}

    def run(self, inputs: Inputs) -> list[Tensor]:
        """Outputs of the model itself, in the order of their names."""
        with torch.inference_mode():
            return flat_outputs(self.reference(**inputs))

    def halved(self, inputs: Inputs, label: str) -> Inputs:
        """The first half of inputs along a dimension that varies, at least 1."""
        halves = dict(inputs)
        for name, value in inputs.items():
            if label in self.shapes[name]:
                place = self.shapes[name].index(label)
                halves[name] = value.narrow(place, 0, max(1, value.shape[place] // 2)).contiguous()
        return halves

    def describe_outputs(self) -> list[tuple[str, list[int | str]]]:
        """Type and dimensions of each output; dimensions that vary with one of the inputs have its name."""
        outputs = self.run(self.example)
        shapes: list[list[int | str]] = [["B", *output.shape[1:]] for output in outputs]
        for label in self.limits:
            if label == "B":
                continue
            for shape, output in zip(shapes, self.run(self.halved(self.example, label)), strict=True):
                for place, size in enumerate(output.shape):
                    if place and size != shape[place] and isinstance(shape[place], int):
                        shape[place] = label
        return [(str(output.numpy().dtype), shape) for output, shape in zip(outputs, shapes, strict=True)]

    def dynamic_shapes(self) -> tuple[tuple[dict[int, Any], ...]]:
        """What torch.export takes for `forward(*values)`: the dimensions of each input that vary."""
        dims = {
            name: torch.export.Dim(name, min=low, max=LONGEST if high is None else high)
            for name, (low, high) in self.limits.items()
        }
        shapes = self.shapes.values()
        return (
            tuple({place: dims[size] for place, size in enumerate(shape) if isinstance(size, str)} for shape in shapes),
        )


def build_program(
    model: pl.LightningModule,
    batches: Iterable[Any],
    facts: Mapping[str, Any],
    has_lengths: bool = False,
    callbacks: Sequence[pl.Callback] = (),
    num_samples: int = 0,
) -> Program:
    """The program of a model in evaluation mode, a copy of it: exporting must not change the model.

    Args:
        model: with its weights; adapters are merged into the copy.
        batches: of the validation set; the first few are read.
        facts: of the training data; `context_length` limits the length of a text if the net does not.
        has_lengths: whether inputs are texts or recordings; their length varies even if these batches have one length.
        callbacks: of the run, which may put something around the program.
        num_samples: that are read at least, if there are as many.

    Raises:
        UserError: the task cannot be exported, there are no batches, or their inputs are not tensors.
    """
    original = copy_of(model)
    task = merged(original)
    programs = [copy.program() if hasattr(copy, "program") else copy for copy in (original, task)]
    reference, module = (evaluation_net(program, callbacks).eval() for program in programs)
    names_inputs = hasattr(task, "program_inputs") and module is programs[1]
    is_task = hasattr(task, "program")
    caller = module

    def read(batch: Any) -> Inputs:
        nonlocal caller
        try:
            if is_task:
                inputs = task.program_inputs(batch) if names_inputs else named_inputs(module, batch)
            else:
                inputs, caller = named_call(module, batch)
        except UserError:
            raise
        except ValueError as error:
            remedy = "; the method program_inputs can name them" if is_task else ""
            raise UserError(f"{type(model).__name__}: {error}{remedy}") from error
        order = [name for name in signature(module.forward).parameters if name in inputs]
        if not is_task:
            order += [name for name in inputs if name not in order]
        if len(order) < len(inputs):
            raise UserError(f"{type(module).__name__}.forward: expected arguments {', '.join(inputs)}")
        return {name: inputs[name].cpu() for name in order}

    examples: list[Inputs] = []
    num_read = 0
    for batch in batches:
        examples.append(read(batch))
        num_read += count_samples(examples[-1])
        if len(examples) >= NUM_BATCHES and num_read >= num_samples:
            break
    if not examples:
        raise UserError("--data: the validation set has no batch to trace the model with")
    if isinstance(caller, Named):
        reference, module = (Named(net, caller.kind).eval() for net in (reference, module))
    shapes = _shapes(examples, {1: "T"} if has_lengths else getattr(task, "program_dims", {}))
    limits = {name: (1, _longest(task, facts) if name == "T" else None) for name in names_in(shapes)}
    with torch.inference_mode():
        outputs = module(**{name: value[:2] for name, value in examples[0].items()})
    names = _output_names(outputs, getattr(task, "program_outputs", ()))
    return Program(original, module, reference, examples, shapes, limits, names, read=read)


def copy_of(model: pl.LightningModule) -> Any:
    """A copy on the CPU in evaluation mode."""
    trainer = attached_trainer(model)
    model.trainer = None
    try:
        copied: Any = deepcopy(model).eval().cpu().float().requires_grad_(False)
    finally:
        model.trainer = trainer
    if trainer is not None and not hasattr(copied, "program"):
        copied.trainer = trainer
        copied.log = copied.log_dict = _log_nothing  # forward may log, which only a loop of the trainer could take
    return copied


def attached_trainer(model: pl.LightningModule) -> Any:
    """The trainer that a model is attached to, or None."""
    try:
        return model.trainer
    except RuntimeError:
        return None


def _log_nothing(*_: Any, **__: Any) -> None:
    pass


def merged(task: Any) -> Any:
    """A task with adapters merged into the weights, by the method `merged` of a net; itself where it has none."""
    wrappers = {name: net for name, net in task.named_children() if hasattr(net, "merged")}
    if not wrappers:
        return task
    task = deepcopy(task)
    for name, net in wrappers.items():
        setattr(task, name, net.merged().requires_grad_(False))
    return task


def flat_outputs(outputs: Any) -> list[Tensor]:
    """Tensors of a tensor, a dict, or a tuple or list of tensors."""
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


def names_in(shapes: Mapping[str, Sequence[int | str]]) -> list[str]:
    """Names of the dimensions that vary, in the order of their appearance."""
    return list(dict.fromkeys(size for shape in shapes.values() for size in shape if isinstance(size, str)))


def _shapes(examples: Sequence[Inputs], declared: Mapping[Any, Any]) -> dict[str, list[int | str]]:
    """Sizes of each input; those that vary between batches, or that the task declares, by name."""
    shapes: dict[str, list[int | str]] = {}
    for name, first in examples[0].items():
        sizes = [example[name].shape for example in examples]
        if len({len(size) for size in sizes}) > 1:
            raise UserError(f"{name}: has a different number of dimensions from batch to batch")
        own = declared.get(name, declared)  # for this input alone, or for all
        shape: list[int | str] = ["B"]
        for place in range(1, first.ndim):
            varies = len({size[place] for size in sizes}) > 1
            label = own.get(place, _label(place, first.ndim))
            shape.append(label if varies or place in own else first.shape[place])
        shapes[name] = shape
    return shapes


def _label(place: int, num_dimensions: int) -> str:
    """Name of a dimension that varies: T for time, H and W of images."""
    if num_dimensions == 4 and place > 1:
        return "HW"[place - 2]
    return "T" if place == 1 else f"D{place}"


def _longest(task: Any, facts: Mapping[str, Any]) -> int | None:
    """The longest text that the net reads; where it does not say, the longest of the data."""
    length = getattr(getattr(task, "net", None), "context_length", None) or facts.get("context_length")
    return length if isinstance(length, int) else None


def _output_names(outputs: Any, declared: Sequence[str]) -> list[str]:
    if isinstance(outputs, Mapping):
        return list(outputs)
    flat = flat_outputs(outputs)
    if not all(isinstance(value, Tensor) for value in flat):
        raise UserError("the model's outputs are no tensors; define `program`, which returns a tensor or a tuple")
    if len(declared) == len(flat):
        return list(declared)
    return ["output"] if len(flat) == 1 else [f"output_{number}" for number in range(len(flat))]
