"""Tracks gradients that GradScaler has scaled and not yet unscaled."""

import ast
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from torchdoctor.evidence import origins

_LATER = ("cuda", "device", "gpu")  # in an option that is off here for want of an accelerator


class Scaling:
    """Tracks the program's gradient scalers, also without an accelerator, where they are disabled."""

    def __init__(self) -> None:
        self.scalers: dict[int, GradScaler] = {}  # by which a loss is scaled, since their last update
        self.unscaled: dict[int, Tensor] = {}  # weights whose gradients are no longer scaled, since then

    def begin(self) -> None:
        """Starts tracking, for the rest of this process."""
        acts: dict[str, Callable[..., None]] = {
            "scale": lambda scaler, *_: self.scalers.update({id(scaler): scaler}),
            "unscale_": lambda _, optimizer: self._unscale([optimizer]),
            # to divide by it, or to scale the limit
            "get_scale": lambda _: self._unscale(origins.living_objects(Optimizer)),
            "update": lambda *_: self._forget(),
        }
        for name, act in acts.items():
            setattr(GradScaler, name, _noting(getattr(GradScaler, name), act))

    def scaler_of(self, weights: Iterable[int]) -> GradScaler | None:
        """The scaler whose factor is still in the gradients of these weights, given by id."""
        is_scaled = any(weight not in self.unscaled for weight in weights)
        scalers = [scaler for scaler in self.scalers.values() if may_scale(scaler) is not False]
        return scalers[0] if scalers and is_scaled else None

    def _unscale(self, optimizers: Iterable[Optimizer]) -> None:
        weights = [weight for each in optimizers for group in each.param_groups for weight in group["params"]]
        self.unscaled |= {id(weight): weight for weight in weights}

    def _forget(self) -> None:
        self.scalers, self.unscaled = {}, {}


def may_scale(scaler: GradScaler) -> bool | None:
    """Whether a scaler would scale on an accelerator; None where an option decides."""
    if scaler.is_enabled():
        return True
    place = origins.maker(scaler)
    call = origins.call_at(place, "GradScaler") if place is not None else None
    if call is None:  # of a library, which divides by itself
        return False
    options = [keyword.value for keyword in call.keywords if keyword.arg == "enabled"]
    if not options:
        return True
    if isinstance(options[0], ast.Constant):
        return bool(options[0].value)
    return True if any(word in ast.unparse(options[0]).lower() for word in _LATER) else None


def _noting(original: Callable[..., Any], act: Callable[..., None]) -> Callable[..., Any]:
    @wraps(original)
    def method(self: GradScaler, *args: Any, **kwargs: Any) -> Any:
        act(self, *args, **kwargs)
        return original(self, *args, **kwargs)

    return method
