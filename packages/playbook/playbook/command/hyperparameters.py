"""What `save_hyperparameters()` keeps of a module that the command line builds: the same as in a script."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from unittest.mock import patch

from lightning.fabric.utilities.data import AttributeDict
from lightning.pytorch.core.mixins import hparams_mixin

from playbook.training.hyperparameters import BUILDERS, Hyperparameters
from playbook.training.lightning.settings import set_hyperparameters
from playbook.training.trainer import as_list

SAVE: Any = hparams_mixin.save_hyperparameters


@contextmanager
def arguments_as_given(*classes: type) -> Iterator[None]:
    """Lets `save_hyperparameters()` see what constructors were given, those of base classes included.

    Lightning shows it the configuration, in which a callable or a dataclass is a mapping; and shows the same to the
    modules that a constructor makes for itself.

    Args:
        classes: of what is built in this context.
    """
    original = SAVE  # also within a context of this kind, where a net rebuilds a run

    def save(obj: Any, *names: Any, given_hparams: Any = None, frame: Any = None, **options: Any) -> None:
        frame = frame or inspect.currentframe().f_back.f_back  # type: ignore[union-attr]  # behind the mixin's method
        if given_hparams is None:
            original(obj, *names, frame=frame, **options)
            return
        arguments = _running_arguments(obj, frame)
        if type(obj) not in classes:
            original(obj, *names, given_hparams=arguments, **options)
            return
        before = vars(obj).get("_hparams", {})  # of a base class that saved its own
        if isinstance(before, Hyperparameters):  # Lightning copies all that there is
            set_hyperparameters(obj, AttributeDict(before.plain()), AttributeDict())
        inherited = {name: None for name in arguments if name not in given_hparams}
        original(obj, *names, given_hparams={**inherited, **given_hparams}, **options)
        if not isinstance(obj.hparams, dict):  # of OmegaConf
            return
        saved = dict(obj.hparams)
        own = arguments if all(isinstance(name, str) for name in names) else {}  # else it was given a mapping
        ignored = options.get("ignore") or ()
        of_base = {name: value for name, value in before.items() if name not in as_list(ignored)}
        values = of_base | saved | {name: own[name] for name in [*of_base, *saved] if name in own}
        configured = {name: value for name, value in saved.items() if name not in inherited}
        live = Hyperparameters({name: value for name, value in values.items() if name not in BUILDERS}, configured)
        set_hyperparameters(obj, live, AttributeDict(live.plain()))

    with patch.object(hparams_mixin, "save_hyperparameters", save):
        yield


def _running_arguments(obj: Any, frame: FrameType | None) -> dict[str, Any]:
    """Arguments of the constructors of an object that are running; those of the class itself count before a base's."""
    values: dict[str, Any] = {}
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__" and code.co_argcount and frame.f_locals.get(code.co_varnames[0]) is obj:
            names, _, keywords, variables = inspect.getargvalues(frame)
            values |= {name: variables[name] for name in names[1:] if name in variables}
            values |= variables.get(keywords, {}) if keywords else {}
        frame = frame.f_back
    return values
