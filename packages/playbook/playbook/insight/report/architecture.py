"""The stages of a net: shapes, parameters and operations, for one sample."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn

from playbook.insight.report.blocks import Block, Table, Text

MOST_STAGES = 40


def blocks(model: Any, batch: Any, counts: bool) -> list[Block]:
    """A table of the stages of a model's net.

    Args:
        model: the LightningModule; its `net` where it has one.
        batch: a batch of one sample, on the CPU; None if there was none.
        counts: whether to count operations as well, which imports for 3 s what a short training does not need.
    """
    net = model.net if isinstance(getattr(model, "net", None), nn.Module) else model
    total = sum(parameter.numel() for parameter in net.parameters())
    trained = sum(parameter.numel() for parameter in net.parameters() if parameter.requires_grad)
    shapes: dict[str, str] = {}
    operations: dict[str, int] = {}
    faults = ["there was no batch"] if batch is None else []
    for evaluate in () if batch is None else _evaluations(model, net, batch):
        shapes, operations, fault = measure(net, evaluate, counts)
        faults.append(fault)
        if not fault:
            break
    rows = [
        {
            "stage": name,
            "module": type(module).__name__,
            "output": shapes.get(name, ""),
            "parameters": sum(parameter.numel() for parameter in module.parameters()),
            "operations": operations.get(name),
        }
        for name, module in stages(net)
    ]
    if all(row["operations"] is None for row in rows):
        rows = [{name: value for name, value in row.items() if name != "operations"} for row in rows]
    text = f"{type(net).__name__}: {total:,} parameters"
    text += "" if trained == total else f", {trained:,} of them trained"
    text += f", {operations['']:,} floating-point operations a sample" if operations.get("") else ""
    answer: list[Block] = [Text(text + ".")]
    if rows:
        answer.append(Table("Stages; the outputs are those of one sample", rows))
    if faults[-1]:
        answer.append(Text(f"Shapes are incomplete: {faults[0]}."))
    return answer


def _evaluations(model: Any, net: nn.Module, batch: Any) -> list[Callable[[], Any]]:
    """Ways to evaluate a net on a batch, the likeliest first."""
    batch = model.transfer_batch_to_device(batch, model.device, 0)
    inputs = batch[0] if isinstance(batch, list | tuple) and batch else batch
    ways: list[Callable[[], Any]] = [lambda: net(**inputs) if isinstance(inputs, dict) else net(inputs)]
    if is_overridden("predict_step", model):
        ways.append(lambda: model.predict_step(batch, 0))
    return ways


def stages(net: nn.Module) -> list[tuple[str, nn.Module]]:
    """Name and module of each stage: the net's children, and theirs as long as the table stays short."""
    names = [(name, module) for name, module in net.named_children()]
    while True:
        deeper = [
            inner
            for name, module in names
            for inner in ([(f"{name}.{child}", sub) for child, sub in module.named_children()] or [(name, module)])
        ]
        if (len(deeper) == len(names) and deeper == names) or len(deeper) > MOST_STAGES:
            return names[:MOST_STAGES]
        if len(names) > 3:
            return names
        names = deeper


def measure(
    net: nn.Module, evaluate: Callable[[], Any], counts: bool = True
) -> tuple[dict[str, str], dict[str, int], str]:
    """Output shape and operations of each module in one evaluation, and why it failed, empty if it did not.

    The operations are those of products of matrices, convolutions and attention, a multiply-add counted as two. The
    evaluation is a real one: tensors without data take 4 s to import, and end at the first operation that needs data.

    Args:
        net: left as it is.
        evaluate: calls it for one sample.
        counts: whether to count operations.
    """
    shapes: dict[str, str] = {}

    def note(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            shapes.setdefault(name, _shape(output))

        return hook

    hooks = [module.register_forward_hook(note(name)) for name, module in net.named_modules()]
    training = [module for module in net.modules() if module.training]
    net.eval()
    counter = _counter() if counts else None
    fault = ""
    try:
        with counter or nullcontext(), torch.no_grad(), torch.random.fork_rng(), _eager(net):
            evaluate()
    except Exception as error:  # a net may take its inputs from its task alone: the report says so
        fault = f"{type(error).__name__}" + (f" ({str(error).splitlines()[0]:.100})" if str(error) else "")
    finally:
        for hook in hooks:
            hook.remove()
        for module in training:
            module.training = True
    operations = {} if counter is None or fault else counter.get_flop_counts()
    return shapes, {_relative(name): sum(ops.values()) for name, ops in operations.items()}, fault


def _counter() -> Any:
    from torch.utils.flop_counter import FlopCounterMode

    return FlopCounterMode(display=False)


def _eager(net: nn.Module) -> AbstractContextManager[Any]:
    """Runs compiled modules as they are written, so that hooks see each of them."""
    is_compiled = any(module._compiled_call_impl is not None for module in net.modules())
    return torch.compiler.set_stance("force_eager") if is_compiled else nullcontext()


def _relative(name: str) -> str:
    """The name of a module within the net, as the counter has the net's class before it."""
    return "" if name == "Global" else name.partition(".")[2]


def _shape(output: Any) -> str:
    if isinstance(output, Tensor):
        return " × ".join(map(str, output.shape[1:])) or "1"
    if isinstance(output, dict):
        return ", ".join(f"{name} {_shape(value)}" for name, value in output.items() if isinstance(value, Tensor))
    if isinstance(output, list | tuple):
        return ", ".join(_shape(value) for value in output if isinstance(value, Tensor))
    return ""
