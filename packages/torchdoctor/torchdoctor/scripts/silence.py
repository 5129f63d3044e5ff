"""Disables what a replayed step must not do: optimize, zero gradients, step schedules, switch modes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.optim import Optimizer

from torchdoctor.scripts.notes import Backward

_SCALER = torch.amp.GradScaler
_MODES = [(nn.Module, name, lambda self, *_, **__: self) for name in ("train", "eval")]
_ZEROING = [(kind, "zero_grad", lambda self, *_, **__: None) for kind in (Optimizer, nn.Module)]
_SCALING = [
    (_SCALER, "scale", lambda self, outputs: outputs),
    (_SCALER, "unscale_", lambda self, optimizer: None),
    (_SCALER, "update", lambda self, *_: None),
    (_SCALER, "step", lambda self, optimizer, *args, **kwargs: optimizer.step(*args, **kwargs)),
]


@contextmanager
def silenced(
    things: list[Any],
    act: Callable[..., Any],
    on_step: Callable[[Optimizer], None],
    real: bool = False,
    keeps_modes: bool = True,
) -> Iterator[None]:
    """A context that calls `act` instead of `backward`, and `on_step` instead of optimizer steps.

    Args:
        things: the script's optimizers and schedules.
        act: for `backward`.
        on_step: gets the optimizer.
        real: whether optimizers step all the same, and gradients are zeroed.
        keeps_modes: whether `train` and `eval` do nothing.
    """

    def stepping(thing: Any) -> Callable[..., Any]:
        own = thing.step

        def step(closure: Any = None, *args: Any, **kwargs: Any) -> Any:
            result = None
            if not isinstance(thing, Optimizer):
                return result
            if real:
                result = own(closure, *args, **kwargs)
            elif callable(closure):
                result = closure()
            on_step(thing)
            return result

        return step

    replaced: list[tuple[Any, str, Any]] = [(Backward, "act", act), *_SCALING]
    replaced += [*(_MODES if keeps_modes else []), *([] if real else _ZEROING)]
    replaced += [(thing, "step", stepping(thing)) for thing in things]
    with ExitStack() as stack:
        for target, name, new in replaced:
            stack.enter_context(mock.patch.object(target, name, new))
        yield
