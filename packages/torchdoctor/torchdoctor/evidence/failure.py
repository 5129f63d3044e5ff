"""Turns an error before the first training step into a finding."""

import ast
import re
import traceback
from types import FunctionType

from torch import nn

from torchdoctor import source
from torchdoctor.evidence.explanation import with_explanation
from torchdoctor.findings import RUN, Defect, Finding

CRASH = Defect(
    "crash",
    "critical",
    "The program ends with an error.",
    shown_by=RUN,
)
MISSING_SUPER_INIT = Defect(
    "missing-super-init",
    "critical",
    "The program ends with an error when the module is built.",
    explains=("crash",),
    shown_by=RUN,
)


def as_finding(error: BaseException) -> Finding:
    """The finding for an error that the program raised while it was built or started.

    An attribute is missing or cannot be set in a module without `_parameters`, which nn.Module.__init__ makes.

    Args:
        error: with its traceback.
    """
    place = source.raised_at(error)
    plain = re.sub(r"\x1b\[[\d;]*m", "", str(error))  # without colours
    text = f"{type(error).__name__}: {' '.join(plain.split())[:300]}"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    owners = [getattr(error, "obj", None), *(frame.f_locals.get("self") for frame in frames)]
    modules = [owner for owner in owners if isinstance(owner, nn.Module) and "_parameters" not in vars(owner)]
    if not modules or not isinstance(error, AttributeError):
        return Finding(CRASH, place, *with_explanation(error, text))
    end = _last_init(type(modules[0]))
    if end is None or end.__code__ in [frame.f_code for frame in frames]:
        return Finding(MISSING_SUPER_INIT, place, text, "super().__init__()  # the first line of __init__")
    text += ": a class before nn.Module among its bases does not pass __init__ on"
    return Finding(MISSING_SUPER_INIT, source.definition(end), text, "super().__init__()  # in that class, too")


def takes_max_steps(error: BaseException) -> bool:
    """Whether an error comes from user code that needs the Trainer's number of steps.

    Args:
        error: with its traceback.
    """
    place = source.raised_at(error)
    function = source.function_at(place) if place is not None else None
    return function is not None and "trainer.max_steps" in ast.unparse(function)


def _last_init(kind: type) -> FunctionType | None:
    """The first of the user's constructors that does not call `super().__init__()`."""
    inits = [vars(base).get("__init__") for base in kind.__mro__ if base is not nn.Module]
    own = [function for function in inits if source.definition(function) is not None]
    return next((function for function in own if source.first_call([function], "__init__") is None), None)
