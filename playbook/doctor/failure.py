"""What an error means that a program raises before its first training step."""

from torch import nn

from playbook.doctor import source
from playbook.doctor.findings import RUN, Defect, Finding, Place
from playbook.doctor.probes.run import CRASH

MISSING_SUPER_INIT = Defect(
    "missing-super-init",
    "critical",
    "The program ends with an error when the module is built.",
    explains=("crash",),
    shown_by=RUN,
)
DEFECTS = (MISSING_SUPER_INIT,)


def as_finding(error: BaseException) -> Finding:
    """The defect behind an error that the program raised while it was built or started.

    Args:
        error: with its traceback.
    """
    place = source.raised_at(error)
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if "before Module.__init__() call" in text or "__init__() call" in text:
        return Finding(MISSING_SUPER_INIT, place, text, "super().__init__()  # the first line of __init__")
    module = getattr(error, "obj", None)
    if isinstance(error, AttributeError) and isinstance(module, nn.Module) and "_parameters" not in vars(module):
        text += ": a class before nn.Module among its bases does not pass __init__ on"
        return Finding(MISSING_SUPER_INIT, _last_init(type(module)), text, "super().__init__()  # in that class, too")
    return Finding(CRASH, place, text, "")


def _last_init(kind: type) -> Place | None:
    """The __init__ that the chain of `super().__init__()` ends in: the first one that does not call it."""
    inits = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base) and base is not nn.Module]
    own = [function for function in inits if source.definition(function) is not None]
    ends = [function for function in own if source.first_call([function], "__init__") is None]
    return source.definition((ends or own or [kind])[0])
