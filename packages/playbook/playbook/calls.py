"""How a batch reaches the `forward` of a LightningModule: by its arguments, its example input and its own steps."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

from lightning.pytorch import LightningModule
from torch import Tensor, nn

LABELS = ("label", "labels", "target", "targets", "y")  # optional arguments of forward that are for training alone
EXAMPLE = "self.example_input_array, a tensor, a tuple or a dict of names, shows what it takes"


class Call(NamedTuple):
    """What `forward` is called with.

    Attributes:
        positional: its arguments by position.
        named: its arguments by name.
    """

    positional: tuple[Any, ...]
    named: dict[str, Any]


def call_of(module: nn.Module, batch: Any) -> Call:
    """The arguments of a module's forward that a batch holds.

    Raises:
        ValueError: it has no forward, or neither its arguments nor an example tell which.
    """
    if not has_forward(module):
        raise ValueError("has no method forward, expected one from the inputs of a batch to the outputs")
    if _takes_batches(module):
        return Call((batch,), {})
    entries = list(batch) if isinstance(batch, list | tuple) else [batch]
    first = entries[0] if entries else None
    names, required, is_open = _arguments(module)
    example: Any = getattr(module, "example_input_array", None)
    if isinstance(example, Mapping):
        names, required, is_open = list(example), list(example), False
    count = len(example) if isinstance(example, Mapping | tuple | list) else max(1, len(required))
    if isinstance(first, Mapping):
        return _from_mapping(first, names, required, is_open)
    if is_open and not names:
        raise ValueError(f"forward(**inputs) names no argument, and neither does the batch; {EXAMPLE}")
    values = list(first) if isinstance(first, list | tuple) and len(first) == count > 1 else entries[:count]
    if len(values) < count:
        raise ValueError(f"forward needs {', '.join(required)}, but a batch has {len(entries)} entries; {EXAMPLE}")
    return Call((), dict(zip(names, values, strict=True))) if isinstance(example, Mapping) else Call(tuple(values), {})


def _from_mapping(values: Mapping[str, Any], names: list[str], required: list[str], is_open: bool) -> Call:
    if is_open and all(name in values for name in required):
        return Call((), dict(values))
    if names and all(name in values for name in required) and any(name in values for name in names):
        chosen = [name for name in names if name in values and (name in required or name not in LABELS)]
        return Call((), {name: values[name] for name in chosen})
    if len(required) > 1:
        missing = [name for name in required if name not in values]
        raise ValueError(f"forward needs {', '.join(missing)}, but a batch has {', '.join(values)}; {EXAMPLE}")
    return Call((values,), {})  # forward takes the dict itself


def has_forward(module: nn.Module) -> bool:
    """Whether a module defines `forward`."""
    return type(module).forward not in (nn.Module.forward, LightningModule.forward) or "forward" in vars(module)


def _arguments(module: nn.Module) -> tuple[list[str], list[str], bool]:
    """Names of forward's arguments, of those without default, and whether it takes any name."""
    parameters = inspect.signature(module.forward).parameters.values()
    own = [
        parameter for parameter in parameters if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    required = [parameter.name for parameter in own if parameter.default is parameter.empty]
    is_open = any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)
    takes_any = any(parameter.kind == parameter.VAR_POSITIONAL for parameter in parameters)
    return [parameter.name for parameter in own], required, is_open and not takes_any


def _takes_batches(module: nn.Module) -> bool:
    """Whether a method of a module calls `self(batch)` with the batch that it got."""
    for cls in type(module).__mro__:
        if cls.__module__.partition(".")[0] in ("lightning", "torch", "playbook", "builtins"):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        except (OSError, TypeError, SyntaxError):
            continue
        methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        with_batch = [method for method in methods if any(argument.arg == "batch" for argument in method.args.args)]
        calls = [node for method in with_batch for node in ast.walk(method) if isinstance(node, ast.Call)]
        if any(map(_passes_batch, calls)):
            return True
    return False


def _passes_batch(call: ast.Call) -> bool:
    is_forward = ast.unparse(call.func) in ("self", "self.forward")
    return is_forward and len(call.args) == 1 and isinstance(call.args[0], ast.Name) and call.args[0].id == "batch"


class Named(nn.Module):
    """A module whose forward takes a dict, a list or several values, as one whose inputs have names.

    Args:
        module: to call.
        kind: type of the only argument of its forward; Tensor if that takes the values one by one.
    """

    def __init__(self, module: nn.Module, kind: type) -> None:
        super().__init__()
        self.module = module
        self.kind = kind

    def forward(self, **inputs: Tensor) -> Any:
        values = tuple(inputs.values())
        if issubclass(self.kind, Mapping):
            return self.module(dict(inputs))
        return self.module(list(values)) if issubclass(self.kind, list | tuple) else self.module(*values)


def named_call(module: nn.Module, batch: Any) -> tuple[dict[str, Tensor], nn.Module]:
    """The tensors that forward is called with, by name, and the module that takes them so.

    Raises:
        ValueError: as `call_of`, or an input is no tensor.
    """
    call = call_of(module, batch)
    names, required, _ = _arguments(module)
    if call.named:
        inputs = {name: value for name, value in call.named.items() if isinstance(value, Tensor)}
        if missing := [name for name in required if name not in inputs]:
            raise ValueError(f"{missing[0]}: expected a tensor, got {type(call.named.get(missing[0])).__name__}")
        return inputs, module
    (first, *_) = values = call.positional
    kind: type = Tensor
    if len(values) == 1 and isinstance(first, Mapping):
        return {name: value for name, value in first.items() if isinstance(value, Tensor)}, Named(module, dict)
    if len(values) == 1 and isinstance(first, list | tuple):
        values, names, kind = tuple(first), [], list
    if not all(isinstance(value, Tensor) for value in values):
        wrong = next(type(value).__name__ for value in values if not isinstance(value, Tensor))
        raise ValueError(f"expected inputs that are a tensor or a dict of tensors, got {wrong}")
    if len(names) >= len(values):
        return dict(zip(names, values, strict=False)), module
    labels = ["input"] if len(values) == 1 else [f"input_{number}" for number in range(len(values))]
    return dict(zip(labels, values, strict=True)), Named(module, kind)
