"""Stages of a net that begin to train one after another."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from playbook.command.discovery import Entry
from playbook.errors import UserError
from playbook.testing.command import Cli
from playbook.testing.resume import CutAt, PowerCutError, assert_same_ending
from src.callbacks.unfreeze import Unfreeze, stages_of
from tests.nets.test_nets import each_net, example_of, net_class, run


class Staged(nn.Module):
    """Three stages; frozen norms keep their statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.stem, self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16)), nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 10)

    def parameter_stages(self) -> list[list[nn.Parameter]]:
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
data: {{class_path: tests.squares.Squares, init_args: {{batch_size: 250}}}}
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


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 12, 16])
def test_continues_exactly(cli: Cli, step: int) -> None:
    assert fit(cli, "whole").code == 0
    cut = (f"--trainer.callbacks+={CutAt.__module__}.CutAt", f"--trainer.callbacks.step={step}")
    with pytest.raises(PowerCutError):
        fit(cli, "cut", "--checkpoint.every_n_steps", "1", *cut)
    callbacks = '[{"class_path": "Unfreeze", "init_args": {"start": 2}}]'
    assert fit(cli, "cut", "--checkpoint.every_n_steps", "1", "--trainer.callbacks", callbacks).code == 0
    assert_same_ending("cut", "whole")


def test_a_net_of_one_stage_is_an_error(cli: Cli) -> None:
    done = fit(cli, "run", "--model.net", "MLP", "--model.net.widths", "[]")
    assert done.err == "error: trainer.callbacks: Unfreeze needs a net of two stages or more; MLP has 1\n"


@pytest.mark.parametrize("name", ["start", "every_n_epochs"])
def test_counts_below_one_are_errors(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected at least 1 epoch, got 0"):
        Unfreeze(**{name: 0})


@pytest.mark.parametrize(("repeats", "text"), [(0, "body.weight in 0"), (2, "body.weight in 2")])
def test_stages_of_its_own_must_hold_every_parameter_once(repeats: int, text: str) -> None:
    class Wrong(Staged):
        def parameter_stages(self) -> list[list[nn.Parameter]]:
            head, body, stem = super().parameter_stages()
            return [head, *[body] * repeats, stem]

    module: Any = LightningModule()
    module.net = Wrong()
    with pytest.raises(UserError, match=rf"every parameter in one stage; Wrong.parameter_stages\(\) has {text}"):
        Unfreeze().setup(Trainer(accelerator="cpu", logger=False), module, "fit")


class AnyNet(LightningModule):
    """Trains whatever comes out of a net, a batch an epoch; notes what may move and what does."""

    def __init__(self, net: nn.Module, inputs: Any) -> None:
        super().__init__()
        self.net = net
        self.inputs = inputs
        self.trained: list[set[str]] = []
        self.moved: list[set[str]] = []

    def train_dataloader(self) -> Any:
        return [0]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        outputs = [output for output in tree_leaves(run(self.net, self.inputs)) if output.requires_grad]
        return torch.stack([(output * torch.randn_like(output)).mean() for output in outputs]).sum()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.before = {name: parameter.detach().clone() for name, parameter in self.net.named_parameters()}

    def on_train_batch_end(self, *_: Any) -> None:
        parameters = dict(self.net.named_parameters())
        self.trained.append({name for name, parameter in parameters.items() if parameter.requires_grad})
        self.moved.append({name for name, former in self.before.items() if not torch.equal(parameters[name], former)})

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.net.parameters(), lr=0.01, weight_decay=0.1)


def train(module: AnyNet, num_epochs: int) -> Unfreeze:
    unfreeze = Unfreeze()
    Trainer(
        accelerator="cpu",
        max_epochs=num_epochs,
        callbacks=[unfreeze],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(module)
    return unfreeze


@each_net
def test_every_net_unfreezes_from_its_head_to_its_stem(entry: Entry) -> None:
    """Two epochs are trained; what the others train needs no training."""
    torch.manual_seed(0)
    inputs, arguments = example_of(entry, 2)
    net = net_class(entry)(**arguments)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    expected = [{names[id(parameter)] for parameter in stage} for stage in stages_of(net)]
    assert len(expected) >= 3
    _, last = list(net.named_parameters(remove_duplicate=False))[-1]  # a tied head has the weights of the embedding
    assert names[id(last)] in expected[0], "the head comes first"
    module = AnyNet(net, inputs)
    unfreeze = train(module, num_epochs=2)
    for epoch in range(len(expected) + 1):
        trained = set().union(*expected[: epoch + 1])
        if epoch < 2:
            assert module.trained[epoch] == trained
            assert module.moved[epoch] <= trained
            assert module.moved[epoch] & expected[epoch], f"stage {epoch} does not train"
        unfreeze.apply(net, epoch)
        assert {name for name, parameter in net.named_parameters() if parameter.requires_grad} == trained


def test_a_frozen_batch_norm_of_any_net_keeps_its_statistics() -> None:
    for num_epochs, moves in [(1, False), (2, True)]:
        norm = nn.BatchNorm2d(2)
        net = nn.Sequential(nn.Conv2d(1, 2, 3), norm, nn.Flatten(), nn.Linear(72, 2))
        train(AnyNet(net, torch.randn(4, 1, 8, 8)), num_epochs)
        assert norm.running_mean is not None
        assert bool(norm.running_mean.any()) is moves
        assert norm.training is moves


def test_a_module_without_a_net_is_taken_as_a_whole() -> None:
    module: Any = LightningModule()
    module.body, module.classifier = nn.Linear(2, 2), nn.Linear(2, 2)
    unfreeze, trainer = Unfreeze(), Trainer(accelerator="cpu", logger=False)
    unfreeze.setup(trainer, module, "fit")
    unfreeze.on_train_start(trainer, module)
    assert [name for name, p in module.named_parameters() if p.requires_grad] == [
        "classifier.weight",
        "classifier.bias",
    ]


def test_ddp_must_not_wait_for_frozen_gradients() -> None:
    module: Any = LightningModule()
    module.net = Staged()
    finding = "ddp_find_unused_parameters_true"
    with pytest.raises(UserError, match=f"Unfreeze needs --trainer.strategy {finding}"):
        Unfreeze().setup(Trainer(accelerator="cpu", strategy="ddp", logger=False), module, "fit")
    Unfreeze().setup(Trainer(accelerator="cpu", strategy=finding, logger=False), module, "fit")


def test_frozen_parameter_groups_are_an_error(cli: Cli) -> None:
    Path("recipe.yaml").write_text(RECIPE)
    done = cli("fit", "--config", "recipe.yaml", "--model.parameter_groups", "[{pattern: net.stem, frozen: true}]")
    assert done.code == 2
    assert done.err == (
        "error: trainer.callbacks: Unfreeze and frozen parameter_groups conflict, expected one of them\n"
    )
