"""Emulates CUDA's autocast to float16 on a CPU."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from sys import _getframe
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torchdoctor import source
from torchdoctor.findings import Place

MAX_FLOAT16 = 65504
ZERO_BELOW = 2.0**-25  # what is smaller becomes zero in float16

# PyTorch's documentation of autocast on CUDA
_TYPES = {
    torch.float16: "mm addmm bmm baddbmm addbmm mv addmv matmul linear convolution _convolution conv1d conv2d conv3d "
    "prelu _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu",
    torch.float32: "exp expm1 log log10 log2 log1p pow rsqrt reciprocal acos asin cosh sinh tan erfinv softplus sum "
    "prod cumsum cumprod norm linalg_vector_norm logsumexp renorm dist _softmax _log_softmax native_layer_norm "
    "native_group_norm mse_loss smooth_l1_loss huber_loss nll_loss_forward nll_loss2d_forward soft_margin_loss kl_div "
    "binary_cross_entropy_with_logits _cdist_forward _pdist_forward _euclidean_dist cosine_similarity",
}
_HALF, _SINGLE = (frozenset(names.split()) for names in _TYPES.values())


@contextmanager
def emulate_autocast() -> Iterator[list[bool]]:
    """A context with autocast switched on; yields a stack whose last item says whether it is enabled at this point."""
    states = [True]

    def init(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        self._enabled = enabled  # torch's own name: decorators were made before

    def enter(self: Any) -> Any:
        states.append(self._enabled)
        return self

    def leave(self: Any, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        states.pop()

    def widest(a: Tensor, b: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if states[-1]:
            kind = torch.promote_types(a.dtype, b.dtype)
            a, b = a.to(kind), b.to(kind)
        return tensordot(a, b, *args, **kwargs)

    tensordot = torch.tensordot  # compares types before a dispatch mode sees it
    with (
        mock.patch.multiple(torch.autocast, __init__=init, __enter__=enter, __exit__=leave),
        mock.patch.object(torch, "tensordot", widest),
    ):
        yield states


class EmulatedFloat16(TorchDispatchMode):
    """Runs each call in the type that autocast to float16 would choose on CUDA.

    Args:
        states: whether autocast is on, as `autocast_on_cpu` gives it.
    """

    def __init__(self, states: list[bool]) -> None:
        super().__init__()
        self.states = states
        self.overflow: tuple[Place, str, float] | None = None  # the first call whose result is too large, its size
        self.infinite: tuple[Place, str] | None = None  # the first call that gives ±inf by a number that is too large
        self.refused: tuple[Place, str] | None = None  # the first call with such a number that raises
        self.probabilities: set[Place] = set()  # where binary_cross_entropy is called

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        place = next(iter(source.callers(_getframe(1))[0]), None)
        is_on = self.states[-1]
        if is_on and name in _SINGLE:
            args, kwargs = _cast((args, kwargs), torch.float32)
            return func(*args, **kwargs)
        if is_on and name in _HALF:
            rounded_args, rounded_kwargs = _cast(_cast((args, kwargs), torch.float16), torch.float32)
            exact = func(*rounded_args, **rounded_kwargs)
            out = _cast(exact, torch.float16)
        else:
            exact = out = self._run(func, args, kwargs, place)
        if is_on and place is not None:
            if name == "binary_cross_entropy":
                self.probabilities.add(place)
            if "empty" not in name and _becomes_infinite(out, (args, kwargs)):
                if any(abs(number) > MAX_FLOAT16 for number in _numbers((args, kwargs))):
                    self.infinite = self.infinite or (place, name.strip("_"))
                elif self.overflow is None:
                    self.overflow = place, name.strip("_"), float(exact.abs().max())
        return out

    def _run(self, func: Any, args: Any, kwargs: Any, place: Place | None) -> Any:
        """The call, in float32 where the CPU has no kernel for float16 or float16 cannot hold one of its numbers."""
        try:
            return func(*args, **kwargs)
        except RuntimeError:
            is_large = any(MAX_FLOAT16 < abs(number) < math.inf for number in _numbers((args, kwargs)))
            args, kwargs = pytree.tree_map_only(torch.dtype, _without_float16, _cast((args, kwargs), torch.float32))
            out = func(*args, **kwargs)
            if is_large and place is not None and self.refused is None:
                self.refused = place, func._schema.name.partition("::")[2]
            return out


def _becomes_infinite(out: Any, arguments: Any) -> bool:
    """Whether a call returns ±inf in float16 although its inputs are finite."""
    results = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor) and leaf.dtype == torch.float16]
    if not any(bool(leaf.isinf().any()) for leaf in results):
        return False
    inputs = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    return all(bool(leaf.isfinite().all()) for leaf in inputs)


def _numbers(arguments: Any) -> list[float]:
    """Numbers among the arguments, and tensors that hold one."""
    leaves = pytree.tree_leaves(arguments)
    scalars = [leaf for leaf in leaves if isinstance(leaf, Tensor) and not leaf.dim() and leaf.is_floating_point()]
    numbers = [leaf for leaf in leaves if isinstance(leaf, int | float) and not isinstance(leaf, bool)]
    return [float(number) for number in (*numbers, *scalars)]


def _without_float16(kind: torch.dtype) -> torch.dtype:
    return torch.float32 if kind == torch.float16 else kind


def _cast(tree: Any, kind: torch.dtype) -> Any:
    """Casts floating-point tensors to another type, except those in double precision."""

    def cast(leaf: Tensor) -> Tensor:
        return leaf.to(kind) if leaf.is_floating_point() and leaf.dtype != torch.float64 else leaf

    return pytree.tree_map_only(Tensor, cast, tree)
