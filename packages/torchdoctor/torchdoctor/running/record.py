"""Records every torch call of the user's code, with its arguments, result and source line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from sys import _getframe
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils import _pytree as pytree

from torchdoctor.findings import Place
from torchdoctor.source import callers

NORMAL = ("randn", "randn_like", "normal", "normal_")  # calls that draw noise with a mean of zero
UNIFORM = ("rand", "rand_like", "bernoulli", "bernoulli_", "uniform_")
DRAWS = (*NORMAL, *UNIFORM, "dropout")  # calls with random results
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
CONVOLUTIONS = {f"conv{way}{n}d": n for way in ("", "_transpose") for n in (1, 2, 3)}  # and their dimensions
_CASTS = {"to", "type", "float", "double", "half", "bfloat16", "long", "int", "bool", "contiguous", "cpu", "cuda"}
_functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]  # torch's stub lacks it


@dataclass(eq=False)
class Op:
    """One recorded call.

    Args:
        name: the function's last name: cross_entropy, view, item.
        args: positional arguments.
        kwargs: named arguments.
        out: the result.
        places: the user's lines that led to it, the innermost first.
        direct: whether the innermost called torch itself, and not through another library.
        grad: whether gradients were on.
        module: of which module's forward the call is part; the innermost.
        function: that was called.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    places: tuple[Place, ...]
    direct: bool
    grad: bool
    module: nn.Module | None
    function: Callable[..., Any]

    @property
    def place(self) -> Place | None:
        """The user's innermost source line."""
        return self.places[0] if self.places else None

    @cached_property
    def inputs(self) -> list[Tensor]:
        """Tensors among the arguments."""
        return tensors((self.args, self.kwargs))

    @cached_property
    def outputs(self) -> list[Tensor]:
        """Tensors in the result."""
        return tensors(self.out)

    def argument(self, index: int, name: str, default: Any = None) -> Any:
        """An argument by position or name."""
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)

    @property
    def takes_shape_alone(self) -> bool:
        """Whether it reads only the shape of its tensors, as `zeros_like` does."""
        return self.name.endswith("_like") or self.name.startswith("new_")

    def again(self, replaced: dict[int, Tensor]) -> Any:
        """Repeats the call with some tensors replaced, without gradients and unrecorded.

        Args:
            replaced: the other tensors, by the identity of those whose place they take.
        """
        args, kwargs = pytree.tree_map_only(Tensor, lambda leaf: replaced.get(id(leaf), leaf), (self.args, self.kwargs))
        with torch.no_grad(), torch._C.DisableTorchFunction():
            return self.function(*args, **kwargs)


def memory(tensor: Tensor) -> int:
    """The address of a tensor's storage, which its views share; its id, if it has none."""
    return tensor.data_ptr() if tensor.layout == torch.strided else id(tensor)


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in nested tuples, lists and dicts, except those of `torch.func.vmap`, which hold no values."""
    return [leaf for leaf in pytree.tree_leaves(tree) if _has_values(leaf)]


def _has_values(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and not _functorch.is_functorch_wrapped_tensor(leaf)


@cache
def _name(function: Callable[..., Any]) -> str:
    name = resolve_name(function) or getattr(function, "__name__", "")
    last = name.removesuffix(".__get__").rpartition(".")[2]
    return last if not last.startswith("__") or last.endswith("__") else last.strip("_")


class Record(TorchFunctionMode):
    """A context that records the calls made in it, in order, in `ops`.

    Tensors stay alive, so that one is told from another by its identity.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.calls: list[tuple[nn.Module, Any, Any]] = []  # modules that the step itself called: with what, result
        self._within: list[nn.Module] = []
        self._makers: dict[int, list[Op]] = {}
        self._takers: dict[int, list[Op]] = {}
        self._indexed = 0  # calls
        self._hooks: list[Any] = []

    def __enter__(self) -> Self:
        register = nn.modules.module
        self._hooks = [
            register.register_module_forward_pre_hook(lambda module, _: self._within.append(module)),
            register.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True),
        ]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        super().__exit__(*error)

    def _leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self._within.pop()
        if not self._within and output is not None:
            self.calls.append((module, (args, kwargs), output))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _functorch.peek_interpreter_stack() is not None:  # what has no values cannot be looked at
            return func(*args, **kwargs)
        places, direct = callers(_getframe(1))
        module = self._within[-1] if self._within else None
        op = Op(_name(func), tuple(args), kwargs, None, places, direct, torch.is_grad_enabled(), module, func)
        self.ops.append(op)
        self.before(op)
        op.out = func(*args, **kwargs)
        self.after(op)
        return op.out

    @cached_property
    def num_bytes(self) -> int:
        """The memory of all tensors that the calls returned, once the record is complete."""
        outputs = (out for op in self.ops for out in op.outputs)
        return sum(out.nbytes for out in outputs if out.layout == torch.strided)

    def before(self, op: Op) -> None:
        """Hook that runs before each call; it may raise instead."""

    def after(self, op: Op) -> None:
        """Hook that runs after each call; it may replace the result."""

    def makers(self, tensor: Tensor) -> list[Op]:
        """The calls that returned a tensor, in order; several where it is changed in place."""
        self.index()
        return self._makers.get(id(tensor), [])

    def takers(self, tensor: Tensor) -> list[Op]:
        """The calls that take a tensor, in order."""
        self.index()
        return self._takers.get(id(tensor), [])

    def index(self) -> None:
        """Builds the index of makers and takers now instead of at the first search."""
        for op in self.ops[self._indexed :]:
            for out in op.outputs if op.name not in _CASTS or op.out is not op.args[0] else ():
                self._makers.setdefault(id(out), []).append(op)
            for leaf in op.inputs:
                self._takers.setdefault(id(leaf), []).append(op)
        self._indexed = len(self.ops)

    def ancestors(self, tensor: Tensor, follow: Callable[[Op, Tensor], bool] = lambda op, output: True) -> set[int]:
        """The ids of a tensor and of all tensors that it was computed from.

        Args:
            tensor: of a call in the record.
            follow: whether to go on to the inputs of a call that made a tensor.
        """
        ids, todo = {id(tensor)}, [tensor]
        while todo:
            output = todo.pop()
            inputs = [leaf for op in self.makers(output) if follow(op, output) for leaf in op.inputs]
            todo += [leaf for leaf in inputs if id(leaf) not in ids]
            ids |= {id(leaf) for leaf in inputs}
        return ids

    def origin(self, tensor: Tensor, through: frozenset[str]) -> Tensor:
        """The tensor at the start of a chain of calls of these names, followed by first arguments."""
        maker = self.producer(tensor)
        if maker is None or maker.name not in through or not maker.inputs or maker.inputs[0] is tensor:
            return tensor
        return self.origin(maker.inputs[0], through)

    def producer(self, tensor: Tensor, through: frozenset[str] = frozenset()) -> Op | None:
        """The call that made a tensor, or the tensor at the start of its chain of calls of these names."""
        if through:
            tensor = self.origin(tensor, through)
        return next(reversed(self.makers(tensor)), None)

    def named(self, *names: str) -> Iterator[Op]:
        """Calls of these names, in order."""
        return (op for op in self.ops if op.name in names)
