"""Loaders of evaluation, whatever stage a data module fills them in."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.model_helpers import is_overridden

from playbook.calls import call_of
from playbook.errors import UserError

STAGES: dict[str, tuple[str | None, ...]] = {  # that may have filled a loader, after the one that was asked for
    "val_dataloader": ("fit", None),
    "test_dataloader": ("test", "fit", None),
    "predict_dataloader": ("fit", None),
}
STEPS = {"validate": "val_dataloader", "test": "test_dataloader", "predict": "predict_dataloader"}


@contextmanager
def reachable_loaders(
    trainer: Trainer, model: Any, datamodule: Any, stage: str, asks_source: bool = True
) -> Iterator[None]:
    """In this context, an evaluation finds its loader where the data fills it for another stage alone.

    Prediction takes the test loader where there is none for prediction, and `forward` where there is no predict_step.

    Args:
        trainer: attached to both, as hooks may ask it.
        model: any LightningModule.
        datamodule: any data module; None if the model has its own loaders.
        stage: validate, test or predict.
        asks_source: whether data or model provide the loader.
    """
    attach(trainer, model, datamodule)
    name, source = STEPS[stage], model if datamodule is None else datamodule
    replaced: list[tuple[Any, str, Any]] = []
    if not asks_source:
        pass
    elif stage == "predict" and not is_overridden(name, source) and is_overridden("test_dataloader", source):
        replaced.append((source, name, _retrying(source, "test_dataloader", stage)))
    elif is_overridden(name, source):
        replaced.append((source, name, _retrying(source, name, stage)))
    if stage == "predict" and isinstance(model, LightningModule) and not is_overridden("predict_step", model):
        replaced.append((model, "predict_step", _forward_step(model)))
    for owner, attribute, function in replaced:
        object.__setattr__(owner, attribute, function)
    try:
        yield
    finally:
        for owner, attribute, _ in replaced:
            object.__delattr__(owner, attribute)


def attach(trainer: Trainer, model: Any, datamodule: Any) -> None:
    """Lets hooks, loaders and properties of a model and its data ask the trainer, as during training."""
    if model is not None:
        model.trainer = trainer
        trainer.strategy.connect(model)
    if datamodule is not None:
        trainer.datamodule = datamodule  # type: ignore[attr-defined]  # set by a connector
        datamodule.trainer = trainer


def _retrying(source: Any, name: str, stage: str) -> Callable[[], Any]:
    """A method that returns the loader of a stage, after the setup of another one where its own leaves it unusable."""
    own = getattr(source, name)

    def loader() -> Any:
        try:
            loaders, failure = own(), None
        except UserError:
            raise
        except Exception as error:  # of any kind: a missing attribute, a data set that is None
            loaders, failure = None, error
        if failure is None and not _is_empty(loaders):
            return loaders
        for other in STAGES[name]:
            if other == stage or not is_overridden("setup", source):
                continue
            try:
                source.setup(stage=other)
                loaders = own()
            except Exception:  # noqa: S112  # what the first one said counts
                continue
            if not _is_empty(loaders):
                said = f"{type(source).__name__}: {name} is usable after setup({other!r}), not after setup({stage!r})"
                print(said, file=sys.stderr, flush=True)
                return loaders
        if failure is not None:
            raise failure
        return loaders

    return loader


def _is_empty(loaders: Any) -> bool:
    """Whether there is no loader, or one of nothing."""
    entries = list(loaders) if isinstance(loaders, list | tuple) else [loaders]
    return any(entry is None or getattr(entry, "dataset", ...) is None for entry in entries)


def _forward_step(model: LightningModule) -> Callable[..., Any]:
    def predict_step(batch: Any, *_: Any, **__: Any) -> Any:
        try:
            call = call_of(model, batch)
        except ValueError as error:
            raise UserError(f"predict: {type(model).__name__}: {error}; or define predict_step") from error
        return model(*call.positional, **call.named)

    return predict_step
