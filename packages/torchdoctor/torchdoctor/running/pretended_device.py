"""A pretended accelerator: tensors that report another device and hold their values on the CPU.

Their device is called "meta", which every build of PyTorch knows, so that `.to(…)`, `self.device`, factories and
Lightning's transfer work as with a real one, and so do `.item()`, control flow and backward. And the CPU in place of a
real accelerator that is missing, for programs that send to it without asking.
"""

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from sys import _getframe
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torchdoctor.findings import Place
from torchdoctor.running.record import RECURRENT, tensors
from torchdoctor.source import callers, calls, classes_in, definition, is_user, tree

PRETENDED = torch.device("meta")
_CPU = torch.device("cpu")
_OF_TENSOR = torch.device("cpu", 0)  # where a tensor is, which is no choice of the program's

# calls that take tensors of the CPU beside those of an accelerator: copies, and lengths that stay on the CPU
_COPIES = ("copy_", "_copy_from", "_to_copy")
_PACKING = ("_pack_padded_sequence", "_pad_packed_sequence")
_LENGTHS = ("ctc_loss", "_ctc_loss", "_use_cudnn_ctc_loss", "_cudnn_ctc_loss")  # which may stay on the CPU
_INDEXING = ("index", "index_put_", "index_put", "_index_put_impl_", "_unsafe_index")


NUMPY, PACKING = "NumPy", "pack_padded_sequence"  # take no tensors of CUDA, as the values and as the lengths
_readers: list[Callable[[str], None]] = []  # called when one of them gets a tensor elsewhere


class PretendedTensor(Tensor):
    """A tensor on the pretended device; `cpu_values` holds its values."""

    __module__ = "torch"  # by whose name libraries such as wandb tell a tensor
    cpu_values: Tensor
    is_cuda = True  # what programs ask before they send something along
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]  # as torch's subclasses do

    @staticmethod
    def __new__(cls: type["PretendedTensor"], cpu_values: Tensor) -> "PretendedTensor":
        tensor = Tensor._make_wrapper_subclass(
            cls,
            cpu_values.shape,
            strides=cpu_values.stride(),
            storage_offset=cpu_values.storage_offset(),
            dtype=cpu_values.dtype,
            device=PRETENDED,
            requires_grad=cpu_values.requires_grad,
        )
        tensor.cpu_values = cpu_values.detach()
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, lambda *_: None)

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        for read in _readers:
            read(NUMPY)
        return self.cpu_values.numpy()

    def tolist(self) -> Any:
        return self.cpu_values.tolist()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        for read in _readers:
            read(NUMPY)
        return self.cpu_values.__array__(*args, **kwargs)

    def __repr__(self, *args: Any, **kwargs: Any) -> str:
        return repr(self.cpu_values)

    def __format__(self, spec: str) -> str:
        return format(self.cpu_values, spec)

    def __deepcopy__(self, memo: Any) -> "PretendedTensor":
        copied: Any = PretendedTensor(self.cpu_values.clone())
        is_weight = isinstance(self, nn.Parameter)
        copied = nn.Parameter(copied, self.requires_grad) if is_weight else copied.requires_grad_(self.requires_grad)
        return memo.setdefault(id(self), copied)


OnMixedDevices = Callable[[str, list[Tensor]], None]
OnCreated = Callable[[Tensor, Any], None]


def _run(func: Any, args: Any, kwargs: dict[str, Any], on_mixed: OnMixedDevices) -> Any:
    name = func._schema.name.partition("::")[2]
    device = kwargs.get("device")
    leaves = tensors((args, kwargs))
    here = [leaf for leaf in leaves if not isinstance(leaf, PretendedTensor) and leaf.device.type == "cpu"]
    away = any(isinstance(leaf, PretendedTensor) for leaf in leaves)
    if away and here and name not in _COPIES + _PACKING + RECURRENT:
        strangers = [leaf for leaf in here if leaf.dim() > 0 or (func._schema.is_mutable and leaf is args[0])]
        if name in _INDEXING and isinstance(args[0], PretendedTensor):  # indices may be on the CPU, values may not
            indices = pytree.tree_leaves(args[1])
            strangers = [leaf for leaf in strangers if not any(leaf is index for index in indices)]
        if name in _LENGTHS:
            strangers = [leaf for leaf in strangers if not any(leaf is length for length in args[2:4])]
        if strangers:
            on_mixed(name, strangers)
    for read in _readers if name == "_pack_padded_sequence" and isinstance(args[1], PretendedTensor) else ():
        read(PACKING)
    if device is not None:
        kwargs = kwargs | {"device": _CPU}
    cpu_args, cpu_kwargs = pytree.tree_map_only(PretendedTensor, lambda leaf: leaf.cpu_values, (args, kwargs))
    out = func(*cpu_args, **cpu_kwargs)
    if torch.Tag.inplace_view in func.tags and isinstance(args[0], PretendedTensor):
        with torch._C._DisableTorchDispatch():  # ty: its own sizes change as well
            func(*args, **kwargs)
        return args[0]
    goes_away = torch.device(device) == PRETENDED if device is not None else away
    if not goes_away:
        return out
    if name in _PACKING:  # their lengths stay on the CPU
        return PretendedTensor(out[0]), out[1]
    same = {id(leaf.cpu_values): leaf for leaf in leaves if isinstance(leaf, PretendedTensor)} | {
        id(leaf): leaf for leaf in here
    }
    return pytree.tree_map_only(
        Tensor, lambda leaf: same.get(id(leaf)) if id(leaf) in same else PretendedTensor(leaf), out
    )


class _Dispatch(TorchDispatchMode):
    def __init__(self, on_mixed: OnMixedDevices, on_created: OnCreated) -> None:
        super().__init__()
        self.on_mixed = on_mixed
        self.on_created = on_created

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = _run(func, args, kwargs or {}, self.on_mixed)
        for leaf in tensors(out):
            if not isinstance(leaf, PretendedTensor):
                self.on_created(leaf, args)
        return out


_QUESTIONS: dict[Any, Callable[[Tensor], Any]] = {
    Tensor.is_cuda.__get__: lambda tensor: isinstance(tensor, PretendedTensor),  # type: ignore[attr-defined]
    Tensor.device.__get__: lambda tensor: _OF_TENSOR if tensor.device == _CPU else tensor.device,
}


class _Functions(TorchFunctionMode):
    """Handles what a dispatch mode does not see: `torch.tensor` and checks that run before any dispatch."""

    def __init__(self, on_mixed: OnMixedDevices) -> None:
        super().__init__()
        self.on_mixed = on_mixed

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = _redirected(func, args, kwargs or {}, PRETENDED)
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], PretendedTensor):
            args = [args[0], _index_with_tensors(args[1]), *args[2:]]
        if func in _QUESTIONS:
            return _QUESTIONS[func](args[0])
        device = kwargs.get("device")
        named = torch.device(device) if isinstance(device, str | torch.device) else None
        if named == _CPU and _is_fallback_for_cuda():
            kwargs = kwargs | {"device": PRETENDED}
            named = PRETENDED
        if func in (torch.tensor, torch.as_tensor, torch.asarray) and named == PRETENDED:
            if args and isinstance(args[0], PretendedTensor):
                return func(*args, **kwargs)
            return func(*args, **kwargs | {"device": _CPU}).to(PRETENDED)
        if func is Tensor.new_tensor and isinstance(args[0], PretendedTensor):
            kwargs = {"dtype": args[0].dtype} | kwargs | {"device": _CPU}
            return torch.tensor(*args[1:], **kwargs).to(named or PRETENDED)
        if func is Tensor.cuda:
            return args[0].to(PRETENDED)
        if func is Tensor.to and len(args) > 1 and str(args[1]) == "cpu" and _is_fallback_for_cuda():
            args = [args[0], PRETENDED, *args[2:]]
        try:
            return func(*args, **kwargs)
        except RuntimeError:
            leaves = tensors((args, kwargs))
            strangers = [leaf for leaf in leaves if not isinstance(leaf, PretendedTensor) and leaf.dim() > 0]
            if not 0 < len(strangers) < len(leaves):
                raise
            sent = pytree.tree_map_only(Tensor, lambda leaf: leaf.to(PRETENDED), (tuple(args), kwargs))
            out = func(*sent[0], **sent[1])  # raises again, unless it was for where they are
            self.on_mixed(func.__name__, strangers)
            return out


def _index_with_tensors(index: Any) -> Any:
    """The index with its lists as tensors: torch would build those unseen by any mode, and without values."""
    is_nested = isinstance(index, list) and any(isinstance(part, slice) for part in index)
    parts = index if isinstance(index, tuple) or is_nested else (index,)
    return tuple(torch.as_tensor(part).to(PRETENDED) if isinstance(part, list | np.ndarray) else part for part in parts)


def _redirected(func: Any, args: Any, kwargs: dict[str, Any], device: torch.device) -> tuple[Any, dict[str, Any]]:
    """The arguments of a call with CUDA's device replaced by this one."""

    def sent(argument: Any) -> Any:
        named = argument if isinstance(argument, str) else argument.type if isinstance(argument, torch.device) else ""
        is_number = func is Tensor.to and type(argument) is int  # of a GPU: `tensor.to(0)`
        return device if is_number or named.partition(":")[0] == "cuda" else argument

    args = [args[0], *map(sent, args[1:])] if func is Tensor.to else args
    return args, {name: sent(value) for name, value in kwargs.items()}


def _is_fallback_for_cuda() -> bool:
    """Whether "cpu" is the user's fallback where CUDA is not available, as on this machine.

    A device that the line does not name itself may come from the file of a caller.
    """
    places, _ = callers(_getframe(2))
    is_named = any("cpu" in place.code for place in places[:1])
    if is_named and "cuda" not in places[0].code:
        return False
    return any(checks_for_cuda(place.file) for place in (places[:1] if is_named else places))


@cache
def checks_for_cuda(file: str) -> bool:
    """Whether a file calls `is_available`, as `"cuda" if torch.cuda.is_available() else "cpu"` does."""
    return any(True for _ in calls(tree(file), "is_available"))


class _Generator(torch.Generator):
    """A torch.Generator that accepts the pretended device and lives on the CPU."""

    def __new__(cls, device: Any = None) -> "_Generator":
        own = _CPU if device is None or torch.device(device) == PRETENDED else device
        return super().__new__(cls, own)  # pyright: ignore[reportCallIssue]  # torch's stub knows __init__ alone


@contextmanager
def pretend_device(
    on_mixed: OnMixedDevices, on_created: OnCreated, on_read: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """A context in which tensors can be sent to PRETENDED.

    Args:
        on_mixed: called when a call gets tensors of the CPU beside others: with its name and those of the CPU. The
            call then goes on as if they had been sent along.
        on_created: called with every tensor that is made on the CPU, and the arguments that it is made from.
        on_read: called when what takes tensors of the CPU alone, NUMPY or PACKING, gets one that is elsewhere.
    """
    enter = torch.autocast.__init__

    def autocast(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        enter(self, "cpu" if device_type == PRETENDED.type else device_type, *args, **kwargs)

    generator, send, ask = torch.Generator, Tensor.cuda, torch.cuda.is_available
    Tensor.cuda = lambda self, *_, **__: self.to(PRETENDED)
    torch.cuda.is_available = lambda: is_user(_getframe(1).f_code.co_filename) or ask()
    torch.autocast.__init__ = autocast
    torch.Generator = _Generator
    _readers.append(on_read)
    overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with _Dispatch(on_mixed, on_created), _Functions(on_mixed):
            yield
    finally:
        torch.autocast.__init__ = enter
        torch.Generator = generator
        Tensor.cuda = send
        torch.cuda.is_available = ask
        _readers.remove(on_read)
        torch.__future__.set_overwrite_module_params_on_conversion(overwrite)


class _OnCPU(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = _redirected(func, args, kwargs or {}, _CPU)
        return func(*args, **kwargs)


def sends_to_cuda(model: nn.Module) -> bool:
    """Whether a file of the user's classes names CUDA without checking that it is available."""
    files = {place.file for place in map(definition, classes_in(model)) if place is not None}
    return any(_names_cuda(file) and not checks_for_cuda(file) for file in files)


def _names_cuda(file: str) -> bool:
    texts = (node.value for node in ast.walk(tree(file)) if isinstance(node, ast.Constant))
    return any(isinstance(text, str) and text.partition(":")[0] == "cuda" for text in texts)


@cache
def unconditional_cuda_lines(file: str) -> tuple[Place, ...]:
    """Lines that move or create tensors on CUDA without checking that it is available."""
    nodes = ast.walk(tree(file))
    branches = [node for node in nodes if isinstance(node, ast.If | ast.IfExp) and _tests_device(node.test)]
    asked = {id(node) for branch in branches for node in ast.walk(branch)}
    lines = {
        call.lineno
        for call in ast.walk(tree(file))
        if isinstance(call, ast.Call) and id(call) not in asked and _names_cuda_device(call)
    }
    return tuple(Place(file, line) for line in sorted(lines))


def _tests_device(test: ast.expr) -> bool:
    return any(word in ast.unparse(test).lower() for word in ("cuda", "gpu", "device"))


def _names_cuda_device(call: ast.Call) -> bool:
    """Whether a call is `x.cuda()`, or `x.to("cuda")`, or has `device="cuda"`."""
    owner, _, name = ast.unparse(call.func).rpartition(".")
    named = [
        *(call.args if name in ("to", "device") else ()),
        *(key.value for key in call.keywords if key.arg == "device"),
    ]
    texts = [part.value for part in named if isinstance(part, ast.Constant)]
    is_named = any(isinstance(text, str) and text.partition(":")[0] == "cuda" for text in texts)
    return is_named or (name == "cuda" and bool(owner))


def redirect_cuda_to_cpu() -> None:
    """Keeps on the CPU whatever is sent to CUDA, from now on in this process."""
    _OnCPU().__enter__()
    absent: Any = torch.cuda
    for name in ("set_device", "synchronize", "reset_peak_memory_stats"):
        setattr(absent, name, lambda *_: None)
    absent.current_device = lambda: 0
    for kind in ("FloatTensor", "HalfTensor", "LongTensor", "IntTensor", "ByteTensor", "BoolTensor"):
        setattr(absent, kind, getattr(torch, kind))
