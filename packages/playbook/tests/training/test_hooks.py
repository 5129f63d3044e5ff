"""Hooks of any LightningModule and Callback, against Lightning's own Trainer: the same calls in the same order."""

import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.core.hooks import CheckpointHooks, DataHooks, ModelHooks
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from playbook.testing.command import QUIET
from playbook.training.lightning.hooks import TRANSFER
from playbook.training.trainer import Trainer

OWN = [  # methods of a LightningModule that users override, beside its hooks
    "configure_optimizers", "configure_callbacks", "configure_gradient_clipping", "lr_scheduler_step",
    "optimizer_step", "optimizer_zero_grad", "backward", "training_step", "validation_step", "test_step",
    "predict_step",
]  # fmt: skip
SAVING = ("state_dict", "checkpoint", "state_key")  # parts of names: when to save is up to the run


class Module(pl.LightningModule):
    """Logs in every way that self.log has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def loss(self, batch: list[Tensor]) -> Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def training_step(self, batch: list[Tensor], batch_idx: int) -> dict[str, Any]:
        loss = self.loss(batch)
        self.log("default", loss)
        self.log("both", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.log_dict({"mean": loss, "largest": loss * 2}, on_epoch=True, on_step=False, reduce_fx="max")
        self.log("count", torch.tensor(1.0), reduce_fx="sum", on_epoch=True)
        self.log("number", 3, rank_zero_only=True)
        assert self.optimizers() is not None
        assert self.lr_schedulers() is not None
        return {"loss": loss, "extra": batch_idx}

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("test_loss", self.loss(batch))

    def predict_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self(batch[0])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), 0.1)
        schedule = {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3), "interval": "step"}
        return [optimizer], [schedule]

    def train_dataloader(self) -> DataLoader:
        inputs = torch.arange(96.0).view(24, 4) / 100
        return DataLoader(TensorDataset(inputs, torch.arange(24) % 3), batch_size=4)

    val_dataloader = test_dataloader = predict_dataloader = train_dataloader


def noting(cls: type, names: list[str], prefix: str, calls: list[str]) -> type:
    """A subclass that notes each call of these methods."""

    def note(name: str, method: Callable) -> Callable:
        def noted(self: Any, *args: Any, **options: Any) -> Any:
            if not any(part in name for part in SAVING):
                calls.append(prefix + name)
            return method(self, *args, **options)

        noted.__signature__ = inspect.signature(method)  # Lightning reads it
        return noted

    return type(cls.__name__, (cls,), {name: note(name, getattr(cls, name)) for name in names})


def hooks_of(*owners: type) -> list[str]:
    names = [name for owner in owners for name, value in vars(owner).items() if inspect.isfunction(value)]
    return [name for name in names if name[0] != "_" and "dataloader" not in name and "sharded" not in name]


def calls_of(
    trainer_class: type[pl.Trainer], settings: dict[str, Any], left_alone: Collection[str] = ()
) -> tuple[list[str], Tensor, dict[str, float]]:
    calls: list[str] = []
    names = [name for name in (*hooks_of(ModelHooks, DataHooks, CheckpointHooks), *OWN) if name not in left_alone]
    module = noting(Module, names, "", calls)()
    callback = noting(pl.Callback, hooks_of(pl.Callback), "callback.", calls)()
    trainer = trainer_class(**QUIET, max_epochs=2, log_every_n_steps=2, callbacks=[callback], **settings)
    trainer.fit(module)
    if trainer_class is Trainer:
        is_short = getattr(trainer.fit_loop.epoch_loop, "hooks", None) is not None
        assert is_short == (TRANSFER[0] in left_alone), "the way through a step"
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    calls.append("fitted")
    trainer.validate(module, verbose=False)
    trainer.test(module, verbose=False)
    trainer.predict(module)
    return calls, module.net.weight.detach().clone(), metrics


LIGHTNINGS_WAY: list[str] = []  # all hooks are overridden, those that move batches too
SHORT_WAY = [*TRANSFER]
SHORTEST_WAY = [*TRANSFER, "optimizer_step", "optimizer_zero_grad", "backward", "configure_gradient_clipping"]
SHORTEST_WAY += [f"on_{name}" for name in ("before_zero_grad", "after_backward", "train_batch_start")]


@pytest.mark.parametrize(
    "left_alone", [LIGHTNINGS_WAY, SHORT_WAY, SHORTEST_WAY], ids=["Lightning's way", "short way", "shortest way"]
)
@pytest.mark.parametrize(
    "settings",
    [
        {}, {"accumulate_grad_batches": 2}, {"gradient_clip_val": 0.1}, {"limit_val_batches": 0},
        {"val_check_interval": 0.5}, {"num_sanity_val_steps": 0}, {"check_val_every_n_epoch": 2},
        {"overfit_batches": 2}, {"reload_dataloaders_every_n_epochs": 1}, {"max_steps": 7},
    ],
    ids=str,
)  # fmt: skip
def test_calls_metrics_and_weights_are_lightnings(
    workdir: Path, settings: dict[str, Any], left_alone: list[str]
) -> None:
    theirs = calls_of(pl.Trainer, {"enable_checkpointing": False, **settings}, left_alone)
    ours = calls_of(Trainer, {"run_dir": "run", **settings}, left_alone)
    assert len(theirs[0]) > 150, "the hooks are noted"
    assert ours[0] == theirs[0]
    assert torch.equal(ours[1], theirs[1])
    assert ours[2] == theirs[2]


class Scales(pl.Callback):
    """Changes what a step works on, in the hooks that may."""

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == 0 and batch_idx == 1:
            trainer.callbacks.append(Ends())  # type: ignore[attr-defined]  # set by a connector

    def on_before_optimizer_step(self, trainer: pl.Trainer, module: Any, optimizer: torch.optim.Optimizer) -> None:
        module.log("from_a_callback", 2.0, on_step=False, on_epoch=True)
        for parameter in module.parameters():
            if parameter.grad is not None:  # of a step that was left out
                parameter.grad.mul_(0.5)


class Ends(pl.Callback):
    """Added within an epoch."""

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        module.log("added_later", 1.0, on_step=False, on_epoch=True, reduce_fx="sum")


class Leaves(Module):
    """Ends each epoch before its fourth batch, and leaves one step out."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 3 else None

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        return None if batch_idx == 1 else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:.*training_step.* returned .None.*")
@pytest.mark.parametrize("module_class", [Module, Leaves])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "64-true"])
def test_what_hooks_change_counts(workdir: Path, module_class: type[Module], precision: Any) -> None:
    weights, metrics, steps, trainers = [], [], [], []
    for trainer_class, setting in ((pl.Trainer, {"enable_checkpointing": False}), (Trainer, {"run_dir": "run"})):
        module = module_class()
        settings: dict[str, Any] = {**QUIET, **setting, "max_epochs": 2, "precision": precision}
        trainer = trainer_class(**settings, callbacks=[Scales()])
        trainer.fit(module)
        weights.append(module.net.weight.detach().clone())
        metrics.append({name: float(value) for name, value in trainer.callback_metrics.items()})
        steps.append(trainer.global_step)
        trainers.append(trainer)
    assert getattr(trainers[1].fit_loop.epoch_loop, "hooks", None) is not None, "the short way was taken"
    assert torch.equal(*weights)
    assert metrics[0] == metrics[1]
    assert steps[0] == steps[1]


def test_a_loader_is_trained_on_twice(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "1")
    loader = Module().train_dataloader()
    weights = []
    for name in ("first", "second"):
        module = Module()
        Trainer(**QUIET, max_epochs=1, run_dir=name, num_sanity_val_steps=0).fit(module, loader)
        weights.append(module.net.weight.detach().clone())
    assert torch.equal(*weights)
