"""What `save_hyperparameters()` keeps of a module that the command line builds."""

from collections.abc import Iterator
from contextlib import contextmanager
from sys import _getframe
from typing import Any

from lightning.fabric.utilities.data import AttributeDict
from lightning.pytorch.core.mixins import HyperparametersMixin, hparams_mixin
from lightning.pytorch.utilities.parsing import collect_init_args

from playbook.training.lightning import set_hyperparameters


class Hyperparameters(AttributeDict):
    """The configured arguments; those that a class gave to its bases can be read, but no checkpoint keeps them.

    Args:
        configured: plain values, of which the module can be built again.
        of_bases: arguments of base classes by name.
    """

    def __init__(self, configured: dict[str, Any], of_bases: dict[str, Any]) -> None:
        super().__init__(configured)
        object.__setattr__(self, "of_bases", of_bases)  # its own __setattr__ adds an item

    def _readable(self) -> dict[str, Any]:
        return {**vars(self).get("of_bases", {}), **self}  # a copy that is being made has none yet

    def __missing__(self, key: str) -> Any:
        return self._readable()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._readable()

    def get(self, key: str, default: Any = None) -> Any:
        return self._readable().get(key, default)

    def keys(self) -> Any:  # and no other way of going through them: checkpoints use those
        return self._readable().keys()


@contextmanager
def arguments_of_bases() -> Iterator[None]:
    """Lets `save_hyperparameters()` in a base class see the arguments of that class, as it does in a script.

    Lightning gives it what the command line configures, which are the arguments of the class that is built.
    """
    original: Any = hparams_mixin.save_hyperparameters

    def save(obj: Any, *names: Any, given_hparams: Any = None, **options: Any) -> None:
        if given_hparams is None:
            original(obj, *names, **options)
            return
        of_bases = dict(getattr(obj.hparams, "of_bases", {}))
        for arguments in collect_init_args(_getframe(2), [], classes=(HyperparametersMixin,))[:-1]:
            of_bases |= arguments
        asked = {name: of_bases[name] for name in names if isinstance(name, str) and name in of_bases}
        original(obj, *names, given_hparams={**asked, **given_hparams}, **options)
        set_hyperparameters(obj, Hyperparameters(obj.hparams, of_bases))

    hparams_mixin.save_hyperparameters = save
    try:
        yield
    finally:
        hparams_mixin.save_hyperparameters = original
