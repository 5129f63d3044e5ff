"""Autocast to float16 as CUDA has it, on a CPU."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from sys import _getframe
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from playbook.doctor import source
from playbook.doctor.findings import Place

LARGEST = 65504
LEAST = 2.0**-25  # what is smaller becomes zero in float16

# PyTorch's documentation of autocast: calls that run in float16, and calls that run in float32, on CUDA
_HALF = [
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "addbmm",
    "mv",
    "addmv",
    "matmul",
    "linear",
    "convolution",
    "_convolution",
    "conv1d",
    "conv2d",
    "conv3d",
    "prelu",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_flash_attention_for_cpu",
]
_SINGLE = [
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "pow",
    "rsqrt",
    "reciprocal",
    "acos",
    "asin",
    "cosh",
    "sinh",
    "tan",
    "erfinv",
    "softplus",
    "sum",
    "prod",
    "cumsum",
    "cumprod",
    "norm",
    "linalg_vector_norm",
    "logsumexp",
    "renorm",
    "dist",
    "_softmax",
    "_log_softmax",
    "native_layer_norm",
    "native_group_norm",
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
    "nll_loss_forward",
    "nll_loss2d_forward",
    "binary_cross_entropy_with_logits",
    "soft_margin_loss",
    "_cdist_forward",
    "_pdist_forward",
    "_euclidean_dist",
    "cosine_similarity",
    "kl_div",
]
_PASSING = (
    "view",
    "_unsafe_view",
    "squeeze",
    "unsqueeze",
    "select",
    "slice",
    "permute",
    "t",
    "clone",
    "rsub",
    "_to_copy",
)


@contextmanager
def autocast_on_cpu() -> Iterator[list[bool]]:
    """Pretends that autocast is on; gives whether it is still, within the user's own torch.autocast(enabled=…)."""
    states, kept = [True], (torch.autocast.__init__, torch.autocast.__enter__, torch.autocast.__exit__)

    def init(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        self.asked = enabled

    def enter(self: Any) -> Any:
        states.append(self.asked)
        return self

    def leave(self: Any, *_: Any) -> None:
        states.pop()

    for name, method in (("__init__", init), ("__enter__", enter), ("__exit__", leave)):
        setattr(torch.autocast, name, method)
    try:
        yield states
    finally:
        torch.autocast.__init__, torch.autocast.__enter__, torch.autocast.__exit__ = kept


class Half(TorchDispatchMode):
    """Runs calls in the types that autocast to float16 would choose on CUDA."""

    def __init__(self, states: list[bool]) -> None:
        super().__init__()
        self.states = states
        self.overflow: tuple[Place, str, float] | None = None
        self.refused: tuple[Place, str] | None = None
        self.lost: tuple[Place, float] | None = None
        self._added: dict[int, tuple[Place, float]] = {}
        self._alive: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        places, _ = source.callers(_getframe(1))
        on = self.states[-1]
        if on and name in _HALF:
            exact = func(*_cast(args, torch.float32, round_=True), **_cast(kwargs, torch.float32, round_=True))
            out = _cast(exact, torch.float16)
            self._overflown(name, places, exact, out)
            return out
        if on and name in _SINGLE:
            self._logarithm(name, args, places)
            args, kwargs = _cast(args, torch.float32), _cast(kwargs, torch.float32)
        try:
            out = func(*args, **kwargs)
        except RuntimeError as error:
            if "without overflow" in str(error) and places:
                self.refused = self.refused or (places[0], name)
            out = _again(func, args, kwargs)
        if on and name not in _SINGLE:
            self._overflown(name, places, None, out, args)
            self._epsilon(name, args, out, places)
        return out

    def _overflown(self, name: str, places: tuple[Place, ...], exact: Any, out: Any, args: Any = ()) -> None:
        if (
            self.overflow is not None
            or not places
            or name in ("masked_fill", "masked_fill_", "where", "fill_", "full", "full_like")
        ):
            return
        for leaf in pytree.tree_leaves(out) if "empty" not in name else ():  # memory as it was found
            if isinstance(leaf, Tensor) and leaf.dtype == torch.float16 and leaf.isinf().any():
                given = [
                    item for item in pytree.tree_leaves(args) if isinstance(item, Tensor) and item.is_floating_point()
                ]
                if all(item.isfinite().all() for item in given):
                    size = float(exact.abs().max()) if isinstance(exact, Tensor) else float("inf")
                    self.overflow = places[0], name.strip("_"), size

    def _epsilon(self, name: str, args: Any, out: Any, places: tuple[Place, ...]) -> None:
        """Keeps x + ε where x comes from a sigmoid or a softmax in float16 and ε is lost in it."""
        if not isinstance(out, Tensor) or out.dtype != torch.float16:
            return
        self._alive.append(out)
        if name in ("sigmoid", "add", "clamp", "clamp_min", *_PASSING) and places:
            number = args[1] if len(args) > 1 and isinstance(args[1], int | float) else None
            if name == "sigmoid":
                self._added[id(out)] = places[0], 0.0
            elif name in _PASSING and id(args[0]) in self._added:
                self._added[id(out)] = self._added[id(args[0])]
            elif id(args[0]) in self._added and number is not None and 0 < number < LEAST:
                self._added[id(out)] = places[0], number

    def _logarithm(self, name: str, args: Any, places: tuple[Place, ...]) -> None:
        if name in ("log", "log2", "log10") and args and self._added.get(id(args[0]), (None, 0.0))[1] and places:
            self.lost = self.lost or (places[0], self._added[id(args[0])][1])


def _cast(tree: Any, kind: torch.dtype, round_: bool = False) -> Any:
    """Floating tensors in another type; rounded to float16 on the way if asked."""

    def cast(leaf: Tensor) -> Tensor:
        if not leaf.is_floating_point() or leaf.dtype == torch.float64:
            return leaf
        return leaf.to(torch.float16).to(kind) if round_ else leaf.to(kind)

    return pytree.tree_map_only(Tensor, cast, tree)


def _again(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The call in float32: what the CPU has no kernel for in float16."""
    return func(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))
