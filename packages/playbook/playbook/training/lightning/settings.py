"""Settings that Lightning keeps to itself: of signals, strategies, loggers and hyperparameters."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.core.mixins.hparams_mixin import _given_hyperparameters, _given_hyperparameters_context
from lightning.pytorch.utilities import parsing


def leave_signals_alone(trainer: Trainer) -> None:
    """In setup: keeps Lightning from installing its handlers of SIGTERM and SIGUSR1."""
    connector: Any = trainer._signal_connector
    connector.register_signal_handlers = lambda: None


def checks_after_training_epochs(early_stopping: Any) -> bool:
    """Whether an EarlyStopping looks at its metric at the end of training epochs, not of validations."""
    return bool(early_stopping._check_on_train_epoch_end)


def finds_unused_parameters(strategy: Any) -> bool:
    """Whether a DDPStrategy lets parameters go without a gradient (`ddp_find_unused_parameters_true`)."""
    return bool(strategy._ddp_kwargs.get("find_unused_parameters"))


def set_data_parallel_size(strategy: Any, size: int) -> None:
    """Sets how many devices of a ModelParallelStrategy share a batch; before its setup_environment."""
    strategy._data_parallel_size = size


def drop_wandb_setting(logger: Any, name: str) -> None:
    """Removes an argument that a WandbLogger would pass to `wandb.init`."""
    logger._wandb_init.pop(name, None)


def is_built_by_command_line() -> bool:
    """In the constructor of a module: whether the command line builds it, from plain values."""
    return _given_hyperparameters.get() is not None


def configured_by(class_path: str, values: dict[str, Any]) -> AbstractContextManager[None]:
    """Builds a module as the command line does: its `save_hyperparameters` is shown the configuration.

    Args:
        class_path: of the module.
        values: its arguments, as plain values.
    """
    return _given_hyperparameters_context(
        {"_class_path": class_path, **values}, "lightning.pytorch.cli.instantiate_module"
    )


def set_hyperparameters(module: Any, values: Any, initial: Any) -> None:
    """Replaces the dictionaries that `module.hparams` and `module.hparams_initial` are."""
    module._hparams = values
    module._hparams_initial = initial


def keep_what_cannot_be_pickled(kind: type) -> None:
    """Keeps Lightning from deleting entries of such a dictionary of hyperparameters when a training begins."""
    clean: Any = parsing.clean_namespace
    if getattr(clean, "kind", None) is not kind:

        def clean_others(values: Any) -> None:
            if not isinstance(values, kind):
                clean(values)

        clean_others.kind = kind  # marks the function as replaced
        parsing.clean_namespace = clean_others


def complete_checkpoints(trainer: Trainer, complete: Callable[[dict[str, Any]], None]) -> None:
    """Has every checkpoint that the trainer makes pass through a function, after all hooks and before it is written."""
    connector: Any = trainer._checkpoint_connector
    dump = connector.dump_checkpoint

    def dump_and_complete(*args: Any, **kwargs: Any) -> dict[str, Any]:
        checkpoint = dump(*args, **kwargs)
        complete(checkpoint)
        return checkpoint

    connector.dump_checkpoint = dump_and_complete
