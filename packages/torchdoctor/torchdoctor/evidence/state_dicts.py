"""Tracks live state dicts and the optimizer steps that follow them."""

import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

from torchdoctor import source
from torchdoctor.findings import Place

_MOST = 20  # states that are remembered; a program that keeps its best weights holds one or two
OnLoad = Callable[[nn.Module, Mapping[str, Any], Place], None]
OnSave = Callable[[Any, Place], None]
Fingerprint = frozenset[tuple[str, float, float]]  # name, sum and sum of squares of each


class SharedTensor(NamedTuple):
    """A tensor of a state dict, the weight that it shares memory with, and the number of steps before."""

    tensor: Callable[[], Tensor | None]
    weight: Callable[[], Tensor | None]
    num_steps: int

    def is_loaded_by(self, tensor: Any, weight: Tensor | None) -> bool:
        """Whether loading this tensor into this weight copies the weight onto itself."""
        if weight is None or self.weight() is not weight or self.tensor() is not tensor:
            return False
        return tensor.data_ptr() == weight.data_ptr()


@dataclass(eq=False)
class StateDict:
    """The result of one call of `state_dict`.

    Args:
        places: the user's lines that called it, the innermost first.
        entries: by the identity of their tensors.
        is_loaded: whether the program has loaded it.
        is_saved: whether it was saved to a file.
    """

    places: tuple[Place, ...]
    entries: dict[int, SharedTensor]
    is_loaded: bool = False
    is_saved: bool = False

    @property
    def is_referenced(self) -> bool:
        """Whether the program still refers to some of it."""
        return any(entry.tensor() is not None for entry in self.entries.values())


class StateDictTracker:
    """Tracks state dicts, loads, saves and optimizer steps.

    What a real accelerator would copy counts as copied here, where all is on the CPU: tensors that `.cpu()` or `.to()`
    have taken, and weights of a model that was sent to its device since.

    Args:
        on_load: called before a line of the user's loads weights, with the module, the weights by name, and the line.
        on_save: called before a line of the user's saves something to a file, with that and the line.
    """

    def __init__(self, on_load: OnLoad, on_save: OnSave) -> None:
        self.on_load, self.on_save = on_load, on_save
        self.states: list[StateDict] = []
        self.overwritten: dict[Place, int] = {}  # steps that changed what a line kept, until it kept weights anew
        self.unsaved: dict[Place, int] = {}  # the same, of what was not saved until then
        self.num_steps = 0  # of all optimizers
        self.initial: set[Fingerprint] = set()  # what `state_dict` returned before the first of them
        self._steps: Any = WeakIdKeyDictionary()  # of each weight: how many changed it, its version after the last
        self._is_sent: Any = WeakIdKeyDictionary()  # of each module: whether it was sent to a device, not brought back
        self._depth = 0  # of calls of state_dict in each other

    def begin(self) -> None:
        """Starts tracking, for the rest of this process."""
        give, load, save = nn.Module.state_dict, nn.Module.load_state_dict, torch.save

        @wraps(give)
        def state_dict(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                state = give(module, *args, **kwargs)
            finally:
                self._depth -= 1
            places, is_direct = source.callers(sys._getframe(1))
            if self._depth == 0 and is_direct and isinstance(state, Mapping):
                self._note(module, state, places)
            return state

        @wraps(load)
        def load_state_dict(module: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            places, is_direct = source.callers(sys._getframe(1))
            if is_direct and isinstance(state_dict, Mapping):
                self.on_load(module, state_dict, places[0])
            return load(module, state_dict, *args, **kwargs)

        @wraps(save)
        def save_it(obj: Any, *args: Any, **kwargs: Any) -> None:
            places, is_direct = source.callers(sys._getframe(1))
            if is_direct:
                self.on_save(obj, places[0])
            save(obj, *args, **kwargs)

        torch.save = save_it
        for replacement in (state_dict, load_state_dict):
            setattr(nn.Module, replacement.__name__, replacement)
        for name in ("cpu", "cuda", "to"):
            setattr(nn.Module, name, self._moving(getattr(nn.Module, name), sends=name != "cpu"))
        for name in ("cpu", "to"):
            setattr(Tensor, name, self._copying(getattr(Tensor, name)))
        register_optimizer_step_post_hook(self._after_step)

    def steps_since(self, entry: SharedTensor) -> int:
        """The number of steps that changed a weight since it was kept."""
        weight = entry.weight()
        return self._num_steps(weight) - entry.num_steps if weight is not None else 0

    def is_as_stepped(self, weight: Tensor | None) -> bool:
        """Whether an optimizer step, and no write of the program, changed a weight last."""
        return weight is not None and weight in self._steps and self._steps[weight][1] == weight._version

    def _num_steps(self, weight: Tensor) -> int:
        return self._steps[weight][0] if weight in self._steps else 0

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.num_steps += 1
        for group in optimizer.param_groups:
            for weight in group["params"]:
                if weight.grad is not None and not weight.is_inference():  # which counts no versions
                    self._steps[weight] = self._num_steps(weight) + 1, weight._version

    def _note(self, module: nn.Module, state: Mapping[str, Any], places: tuple[Place, ...]) -> None:
        function = source.function_at(places[0])
        if function is not None and function.name == "state_dict":  # a wrapper's own, which passes the call on
            places = places[1:] or places
        self.states = [former for former in self.states if former.is_referenced][-_MOST:]
        for former in self.states:
            num_steps = max(map(self.steps_since, former.entries.values()), default=0)
            if num_steps and former.places[0] == places[0] and not former.is_loaded:
                self.overwritten[places[0]] = num_steps
                self.unsaved |= {} if former.is_saved else {places[0]: num_steps}
        own = named_weights(module)
        if not self.num_steps:
            self.initial.add(fingerprint(own))
        entries = {
            id(tensor): SharedTensor(weakref.ref(tensor), weakref.ref(own[name]), self._num_steps(own[name]))
            for name, tensor in state.items()
            if name in own and tensor is not own[name] and isinstance(tensor, Tensor) and tensor.layout == torch.strided
        }
        self.states.append(StateDict(places, entries))

    def _copying(self, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @wraps(original)
        def copy(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            for state in self.states:
                state.entries.pop(id(tensor), None)
            return original(tensor, *args, **kwargs)

        return copy

    def _moving(self, original: Callable[..., nn.Module], sends: bool) -> Callable[..., nn.Module]:
        @wraps(original)
        def move(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
            if sends and not self._is_sent.get(module, False):
                self._forget(nn.Module.parameters(module))
            self._is_sent[module] = sends
            return original(module, *args, **kwargs)

        return move

    def _forget(self, weights: Iterable[Tensor]) -> None:
        moved = {id(weight) for weight in weights}
        for state in self.states:
            state.entries = {key: entry for key, entry in state.entries.items() if id(entry.weight()) not in moved}


def named_weights(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of a module by name; shared ones appear under each name."""
    return dict(nn.Module.named_parameters(module, remove_duplicate=False))


def fingerprint(weights: Mapping[str, Tensor]) -> Fingerprint:
    """A fingerprint of the values of some weights."""
    known = {name: value for name, value in weights.items() if value.device.type == "cpu" and not is_lazy(value)}
    exact = {name: value.detach().double() for name, value in known.items()}
    return frozenset((name, float(value.sum()), float(value.square().sum())) for name, value in exact.items())
