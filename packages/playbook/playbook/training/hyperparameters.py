"""What `self.hparams` is in a module that the command line has built."""

from copy import deepcopy
from typing import Any

from lightning.fabric.utilities.data import AttributeDict
from lightning.pytorch import Trainer
from torch import nn

from playbook.training.lightning.settings import complete_checkpoints, keep_what_cannot_be_pickled

BUILDERS = ("_class_path", "_instantiator")  # by which Lightning builds a module again from a checkpoint


class Hyperparameters(AttributeDict):
    """The arguments of a module's constructors, as they were given; a checkpoint keeps how they were configured.

    Args:
        arguments: objects and callables included, and those that a class gave to its bases.
        configured: plain values of which the module can be built again.
    """

    def __init__(self, arguments: dict[str, Any], configured: dict[str, Any]) -> None:
        super().__init__(arguments)
        vars(self).update(arguments=dict(arguments), configured=configured)  # an attribute would become an item

    def plain(self) -> dict[str, Any]:
        """What a checkpoint keeps: also what the module has added or changed since it was built."""
        arguments, configured = vars(self)["arguments"], vars(self)["configured"]
        kept = {name: configured[name] for name in BUILDERS if name in configured}
        for name, value in self.items():
            if name not in arguments or not _is_same(value, arguments[name]):
                kept[name] = value
            elif name in configured:
                kept[name] = value if is_plain(value) else configured[name]
        return kept

    def __deepcopy__(self, memo: dict[int, Any]) -> "Hyperparameters":
        # factories are shared: those of the command line hold on to the parser, and by it to the data and the trainer
        memo |= {id(value): value for value in self.values() if callable(value) and not isinstance(value, nn.Module)}
        copy = Hyperparameters(deepcopy(vars(self)["arguments"], memo), deepcopy(vars(self)["configured"], memo))
        copy.clear()
        copy.update(deepcopy(dict(self), memo))
        return copy


def _is_same(value: Any, argument: Any) -> bool:
    return value is argument or (is_plain(value) and is_plain(argument) and value == argument)


def is_plain(value: Any) -> bool:
    """Whether a value is text, a number, or made of these by lists, tuples and dicts."""
    if type(value) is dict:
        return all(map(is_plain, [*value, *value.values()]))
    if type(value) in (list, tuple):
        return all(map(is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


def plain_hyperparameters(module: Any) -> dict[str, Any]:
    """The hyperparameters of a module as a checkpoint keeps them."""
    values = module.hparams
    return values.plain() if isinstance(values, Hyperparameters) else dict(values)


def keep_plain_hyperparameters(trainer: Trainer) -> None:
    """Has checkpoints keep plain values, of which `load_from_checkpoint` and other processes can build the module."""

    def replace(checkpoint: dict[str, Any]) -> None:
        modules: list[Any] = [trainer.lightning_module, getattr(trainer, "datamodule", None)]
        for module in modules:
            values = getattr(module, "hparams", None)
            if not isinstance(values, Hyperparameters) or module.CHECKPOINT_HYPER_PARAMS_KEY not in checkpoint:
                continue
            saved, plain = checkpoint[module.CHECKPOINT_HYPER_PARAMS_KEY], values.plain()
            own = {name: value for name, value in saved.items() if name not in values or value is not values[name]}
            builders = {name: plain[name] for name in BUILDERS if name in plain}
            same = {name: plain[name] for name in saved if name in plain and name not in own}
            checkpoint[module.CHECKPOINT_HYPER_PARAMS_KEY] = {**builders, **same, **own}  # own are of a hook

    complete_checkpoints(trainer, replace)
    keep_what_cannot_be_pickled(Hyperparameters)
