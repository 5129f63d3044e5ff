"""Stages of a net that begin to train one after another."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from playbook.errors import UserError
from src.callbacks.unfreeze import Unfreeze
from tests.conftest import Cli
from tests.playbook.training.resume.test_exact import CutAt, PowerCutError, assert_same_ending


class Staged(nn.Module):
    """Three stages; frozen norms keep their statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.stem, self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16)), nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 10)

    def stages(self) -> list[list[nn.Parameter]]:
        return [list(self.head.parameters()), list(self.body.parameters()), [*self.stem.parameters(), self.scale]]

    def train(self, mode: bool = True) -> "Staged":
        super().train(mode)
        if not self.body.weight.requires_grad:
            self.body.eval()
        return self

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.body(self.stem(image * self.scale)).relu())


RECIPE = f"""
seed_everything: 1
model: {{class_path: Classification, init_args: {{net: {{class_path: {__name__}.Staged}}}}}}
data: {{class_path: Digits, init_args: {{batch_size: 250}}}}
trainer:
  max_epochs: 5
  log_every_n_steps: 1
  callbacks+: [{{class_path: Unfreeze, init_args: {{start: 2}}}}, {__name__}.Watch]
"""
SEEN: list[dict[str, bool]] = []


class Watch(Callback):
    """Which parts move in an epoch."""

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.before = {name: value.clone() for name, value in pl_module.net.state_dict().items()}  # type: ignore[union-attr]

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        after = pl_module.net.state_dict()  # type: ignore[union-attr]
        SEEN.append({name: not torch.equal(after[name], value) for name, value in self.before.items()})


@pytest.fixture(autouse=True)
def recipe(workdir: Path) -> None:
    SEEN.clear()
    Path("recipe.yaml").write_text(RECIPE)


def fit(cli: Cli, run: str, *args: str) -> Any:
    return cli("fit", "--config", "recipe.yaml", "--run_dir", run, "--ckpt_path", "last", *args)


def test_stages_move_one_after_another(cli: Cli) -> None:
    done = fit(cli, "run")
    assert done.code == 0, done.err
    moving = [{name.split(".")[0] for name, moved in epoch.items() if moved} for epoch in SEEN]
    everything = {"head", "body", "stem", "scale"}
    assert moving == [{"head"}, {"head"}, {"head", "body"}, everything, everything]
    assert SEEN[2]["body.running_mean"]
    assert not SEEN[1]["body.running_mean"], "a frozen norm keeps its statistics"


@pytest.mark.parametrize("step", [3, 12, 16])
def test_continues_exactly(cli: Cli, step: int) -> None:
    assert fit(cli, "whole").code == 0
    cut = (f"--trainer.callbacks+={CutAt.__module__}.CutAt", f"--trainer.callbacks.step={step}")
    with pytest.raises(PowerCutError):
        fit(cli, "cut", "--checkpoint.every_n_steps", "1", *cut)
    callbacks = '[{"class_path": "Unfreeze", "init_args": {"start": 2}}]'
    assert fit(cli, "cut", "--checkpoint.every_n_steps", "1", "--trainer.callbacks", callbacks).code == 0
    assert_same_ending("cut", "whole")


def test_mistakes(cli: Cli) -> None:
    done = fit(cli, "run", "--model.net", "MLP")
    assert done.err == "error: trainer.callbacks: Unfreeze needs a net with stages(), MLP has none\n"
    for name in ("start", "every_n_epochs"):
        with pytest.raises(ValueError, match=f"{name}: expected at least 1 epoch, got 0"):
            Unfreeze(**{name: 0})


def test_ddp_must_not_wait_for_frozen_gradients() -> None:
    module: Any = LightningModule()
    module.net = Staged()
    finding = "ddp_find_unused_parameters_true"
    with pytest.raises(UserError, match=f"Unfreeze needs --trainer.strategy {finding}"):
        Unfreeze().setup(Trainer(accelerator="cpu", strategy="ddp", logger=False), module, "fit")
    Unfreeze().setup(Trainer(accelerator="cpu", strategy=finding, logger=False), module, "fit")
