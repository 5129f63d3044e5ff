"""The hooks of a training step, called only where a callback or the module overrides them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.profilers import PassThroughProfiler, Profiler
from lightning.pytorch.strategies import SingleDeviceStrategy

TRANSFER = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
STEPPING = ("pre_backward", "backward", "post_backward", "optimizer_step", "_wrap_closure", "_after_closure")

Hook = Callable[..., Any]


class StepHooks:
    """Calls the hooks of a training step in Lightning's order, but only those that something overrides.

    Lightning calls every hook of every callback in a context of the profiler, 145 contexts a step of a usual training.
    What is overridden is looked up once.

    Args:
        trainer: whose steps are plain, see `has_plain_steps`.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.module = trainer.lightning_module
        self.precision: Any = trainer.precision_plugin
        self.callbacks = list(trainer.callbacks)  # type: ignore[attr-defined]  # set by a connector
        self._profile: Callable[[str], AbstractContextManager] = _profiler(trainer).profile
        self._module_name = f"[LightningModule]{type(self.module).__name__}"
        self._strategy_name = f"[Strategy]{type(trainer.strategy).__name__}"
        self._hooks: dict[str, tuple[list[tuple[str, Hook]], Hook | None]] = {}
        self.converts = _overrides(self.precision, "convert_input", Precision)
        self.has_context = any(
            _overrides(self.precision, n, Precision) for n in ("forward_context", "train_step_context")
        )

    def __call__(self, name: str, *args: Any) -> Any:
        """Calls a hook of the callbacks and of the module, and returns what the module's returned."""
        callbacks, own = self._hooks.get(name) or self._look_up(name)
        if own is None and not callbacks:
            return None
        trainer, module, output = self.trainer, self.module, None
        attributes = module.__dict__  # Module.__setattr__ takes a microsecond
        former = attributes["_current_fx_name"]
        attributes["_current_fx_name"] = name
        for action, hook in callbacks:
            with self._profile(action):
                hook(trainer, module, *args)
        if own is not None:
            with self.in_module(name):
                output = own(*args)
        attributes["_current_fx_name"] = former
        return output

    def overrides(self, name: str) -> bool:
        """Whether the module overrides a method of LightningModule."""
        return _overrides(self.module, name, LightningModule)

    def call_module(self, name: str, *args: Any, **options: Any) -> Any:
        """Calls a method of the module, overridden or not."""
        self.module.__dict__["_current_fx_name"] = name
        with self.in_module(name):
            return getattr(self.module, name)(*args, **options)

    def in_module(self, name: str) -> AbstractContextManager:
        """The profiler's context of a method of the module."""
        return self._profile(f"{self._module_name}.{name}")

    def in_strategy(self, name: str) -> AbstractContextManager:
        """The profiler's context of a method of the strategy."""
        return self._profile(f"{self._strategy_name}.{name}")

    def _look_up(self, name: str) -> tuple[list[tuple[str, Hook]], Hook | None]:
        callbacks = [
            (f"[Callback]{callback.state_key}.{name}", getattr(callback, name))
            for callback in self.callbacks
            if _overrides(callback, name, Callback)
        ]
        own = getattr(self.module, name) if self.overrides(name) else None
        self._hooks[name] = callbacks, own
        return callbacks, own


def has_plain_steps(trainer: Trainer, quiet_profilers: tuple[type, ...]) -> bool:
    """Whether a training step is one forward and backward pass on one device, in one process.

    All else is left to Lightning's own loop: strategies and precisions of other kinds, loss scaling, hooks that move
    batches, manual optimization, and profilers that show the hooks that do nothing as well.

    Args:
        trainer: at the start of an epoch.
        quiet_profilers: classes of profilers that can do without them.
    """
    module, strategy, precision = trainer.lightning_module, trainer.strategy, trainer.precision_plugin
    data = getattr(trainer, "datamodule", None)
    moves = any(_overrides(module, name, LightningModule) for name in TRANSFER) or (
        data is not None and any(_overrides(data, name, LightningDataModule) for name in TRANSFER)
    )
    steps_plainly = not any(_overrides(precision, name, Precision) for name in STEPPING) or (
        type(precision) is MixedPrecision and precision.scaler is None  # its own steps are for the scaler
    )
    return (
        type(strategy) is SingleDeviceStrategy
        and strategy.model is module
        and steps_plainly
        and not moves
        and type(_profiler(trainer)) in (*quiet_profilers, PassThroughProfiler)
        and module.automatic_optimization
        and len(trainer.optimizers) == 1
    )


def _profiler(trainer: Any) -> Profiler:
    return trainer.profiler


def _overrides(owner: Any, name: str, base: type) -> bool:
    """Whether an object has another method than its base class; one that cannot be called does not count."""
    method = getattr(owner, name)
    return callable(method) and getattr(method, "__func__", method) is not getattr(base, name)
