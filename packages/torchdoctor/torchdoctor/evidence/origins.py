"""Finds the user's lines that construct layers, optimizers, schedules, loaders and data sets, and their options."""

import ast
import weakref
from collections.abc import Callable
from functools import wraps
from sys import _getframe
from typing import Any, TypeVar

from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader

from torchdoctor import source
from torchdoctor.evidence.samples import loader_owner, underlying_dataset
from torchdoctor.findings import Place
from torchdoctor.running.record import Op
from torchdoctor.running.subject import Subject

Thing = TypeVar("Thing")
_NOTED = (nn.Module, Optimizer, LRScheduler, ReduceLROnPlateau, DataLoader, GradScaler)
_stacks: dict[int, tuple[Callable[[], Any], tuple[Place, ...]]] = {}  # by identity: metrics have no hash so early


def note_makers() -> None:
    """Records where layers, optimizers, schedules, loaders and scalers are constructed, from now on in this process."""
    for kind in _NOTED:
        if not hasattr(kind.__init__, "notes_maker"):
            kind.__init__ = _noting(kind.__init__)


def _noting(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        frame = _getframe(1)
        while frame is not None and (
            not source.is_user(frame.f_code.co_filename) or frame.f_locals.get("self") is self
        ):
            frame = frame.f_back  # a class's own __init__ is not the line that makes it
        if not makers(self):
            _stacks[id(self)] = weakref.ref(self), source.callers(frame)[0]

    init.notes_maker = True  # type: ignore[attr-defined]  # read above
    return init


def makers(thing: Any) -> tuple[Place, ...]:
    """The user's lines that constructed an object, innermost first; none for a copy."""
    known, places = _stacks.get(id(thing), (lambda: None, ()))
    return places if known() is thing else ()


def maker(thing: Any) -> Place | None:
    """The innermost of them that names the class, not a helper that got the class as an argument."""
    places = makers(thing)
    return next((place for place in places if not _calls_parameter(place, type(thing).__name__)), None)


def _calls_parameter(place: Place, name: str) -> bool:
    """Whether a line calls a parameter of its function instead of anything of this name."""
    nodes = ast.walk(source.tree(place.file))
    called = [node.func for node in nodes if isinstance(node, ast.Call) and node.lineno == place.line]
    is_named = any(ast.unparse(function).rpartition(".")[2] == name for function in called)
    return not is_named and any(_is_parameter(function, place) for function in called)


def living_objects(kind: type[Thing]) -> list[Thing]:
    """The existing layers, optimizers, schedules or loaders, in order of construction."""
    return [thing for known, _ in list(_stacks.values()) if isinstance(thing := known(), kind)]


def layer(model: nn.Module, part: nn.Module) -> Place | None:
    """The line that constructed a submodule; for a copy, the line that constructed or assigned its parent."""
    names = next((name for name, module in model.named_modules() if module is part), "").split(".")
    for depth in range(len(names), 0, -1):
        around, inner = (model.get_submodule(".".join(names[:end])) for end in (depth - 1, depth))
        place = maker(part if depth == len(names) else inner) or source.assignment(around, names[depth - 1])
        if place is not None:
            return place
    return source.definition(type(model))


def called_layer_line(model: nn.Module, op: Op) -> Place | None:
    """The line that constructed the torch layer behind a call; else the line of the call."""
    is_own = op.module is None or source.definition(type(op.module)) is not None
    return op.place if is_own or op.module is None else layer(model, op.module)


def optimizer(subject: Subject, number: int = 0) -> tuple[Place | None, ast.Call | None]:
    """The line of the `lr=` of the optimizer with this index, and its constructor call."""
    chosen = subject.trainer.optimizers[number]
    place = maker(chosen)
    if place is None:
        return source.definition(type(subject.model).configure_optimizers), None
    call = call_at(place, type(chosen).__name__)
    rates = [keyword.value for keyword in call.keywords if keyword.arg == "lr"] if call is not None else []
    return Place(place.file, rates[0].lineno) if rates else place, call


def loaders(subject: Subject, kind: str) -> list[tuple[DataLoader, list[Place]]]:
    """The loaders of a kind, each with the lines that constructed it, innermost first, or its method."""
    method = source.definition(getattr(type(loader_owner(subject)), f"{kind}_dataloader", None))
    returned = [method] if method else []
    return [(loader, list(makers(loader)) or returned) for loader in subject.loaders(kind)]


def call_at(place: Place, name: str = "") -> ast.Call | None:
    """The outermost call of a name that begins on a line, or spans it."""
    calls = [call for call in source.around(place, ast.Call) if name in ast.unparse(call.func)]
    return max(calls, key=lambda call: call.lineno, default=None)


def option(places: list[Place], name: str) -> tuple[Place | None, ast.expr | None]:
    """The line and value of a loader's option; the line of the innermost constructor call if it is not set."""
    for place, caller in zip(places, [*places[1:], None], strict=True):
        call = call_at(place, "DataLoader") or call_at(place)
        keywords = call.keywords if call else []
        value = next((keyword.value for keyword in keywords if keyword.arg == name), None)
        if value is None and any(keyword.arg is None for keyword in keywords):
            value = _in_dict(place.file, name)
        if value is not None and caller is not None and _is_parameter(value, place):
            return caller, None  # the caller decides
        if value is not None:
            return Place(place.file, value.lineno), value
    return next(iter(places), None), None


def _in_dict(file: str, name: str) -> ast.expr | None:
    """The value of this key in a dict of the file, for calls with `**options`."""
    for node in ast.walk(source.tree(file)):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    return value
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
            for keyword in node.keywords:
                if keyword.arg == name:
                    return keyword.value
    return None


def _is_parameter(value: ast.expr, place: Place) -> bool:
    return isinstance(value, ast.Name) and value.id in source.parameters(place)


def dataset_line(subject: Subject, dataset: Any) -> tuple[Place, ast.stmt] | None:
    """The last statement that constructed a data set kept in an attribute of the data module."""
    keeper = loader_owner(subject)
    for wanted in (dataset, underlying_dataset(dataset)):
        for name, value in list(vars(keeper).items()):
            if value is wanted:
                for place, statement in reversed(source.assigned(keeper, name)):
                    return place, statement
    return None
