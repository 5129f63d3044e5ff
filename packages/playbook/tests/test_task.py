"""What every task shares, on the smallest net that can be trained."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.loggers.logger import Logger
from torch import Tensor, nn, optim
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import OneCycleLR, StepLR
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanSquaredError, MetricCollection

from playbook.deploy.program import build_program
from playbook.errors import UserError
from playbook.optim.rules import read_rules
from playbook.optim.schedules import ReduceLROnPlateau, WarmupCosine
from playbook.task import Task
from playbook.testing.command import UNSAVED, Cli


class Fit(Task):
    """The least a task can be: it brings its steps and one metric."""

    def __init__(self, net: nn.Module | None = None, optimizer: Any = None, schedule: Any = None) -> None:
        super().__init__(net or nn.Linear(2, 1), optimizer, schedule, MetricCollection({"mse": MeanSquaredError()}))

    def _step(self, stage: str, batch: Any) -> Tensor:
        inputs, target = batch
        output = self(inputs)[:, 0]
        loss = mse_loss(output, target)
        self.log_step(stage, loss, len(target), preds=output, target=target)
        return loss

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self._step("train", batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._step("val", batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self._step("test", batch)


def samples(num_samples: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, 2, generator=generator)
    return [(x, x.sum()) for x in inputs]


def loader(num_samples: int, batch_size: int) -> DataLoader:
    return DataLoader(samples(num_samples), batch_size=batch_size)  # type: ignore[arg-type]


class Rates(Callback):
    """The rate that each optimizer step is taken with."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        self.taken.append(optimizer.param_groups[0]["lr"])


def fit(task: Task, num_samples: int = 10, batch_size: int = 2, **settings: Any) -> tuple[Trainer, list[float]]:
    """Trains, and returns the rates it stepped with."""
    rates = Rates()
    trainer = Trainer(**UNSAVED, **{"max_epochs": 1, "num_sanity_val_steps": 0, **settings}, callbacks=[rates])
    trainer.fit(task, loader(num_samples, batch_size), loader(4, 4))
    return trainer, rates.taken


def decays(optimizer: optim.Optimizer) -> list[float]:
    return [group["weight_decay"] for group in optimizer.param_groups]


def test_adamw_when_nothing_is_said() -> None:
    optimizer = Fit().configure_optimizers()
    assert type(optimizer) is optim.AdamW
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-3]
    assert decays(optimizer) == [0.01, 0.0]


@pytest.mark.parametrize(("precision", "is_fused"), [("32-true", True), ("bf16-mixed", False)])
def test_adamw_steps_fused_where_its_gradients_can_be_clipped(precision: str, is_fused: bool) -> None:
    trainer, _ = fit(Fit(), precision=precision, gradient_clip_val=0.1)
    assert bool(trainer.optimizers[0].param_groups[0]["fused"]) == is_fused
    assert trainer.global_step == 5


def test_the_chosen_weight_decay_reaches_weights_alone() -> None:
    optimizer = Fit(optimizer=partial(optim.AdamW, lr=0.1, weight_decay=0.3)).configure_optimizers()
    assert decays(optimizer) == [0.3, 0.0]


@pytest.mark.parametrize("optimizer", [partial(optim.SGD, lr=0.1), lambda parameters: optim.SGD(parameters, lr=0.1)])
def test_sgd_takes_no_decay_from_the_default(optimizer: Any) -> None:
    assert set(decays(Fit(optimizer=optimizer).configure_optimizers())) == {0.0}


def test_a_function_gets_the_split_when_it_takes_weight_decay() -> None:
    def muted(parameters: Any, weight_decay: float = 0.2) -> optim.Optimizer:
        return optim.SGD(parameters, lr=0.1, weight_decay=weight_decay)

    assert decays(Fit(optimizer=muted).configure_optimizers()) == [0.2, 0.0]


@pytest.mark.parametrize(
    "optimizer", [partial(optim.Rprop, lr=0.1), partial(optim.LBFGS, lr=1.0)], ids=["Rprop", "LBFGS"]
)
def test_optimizers_without_weight_decay_train(optimizer: Any) -> None:
    task = Fit(optimizer=optimizer)
    trainer, _ = fit(task, batch_size=10, max_epochs=50)
    assert sum(len(group["params"]) for group in trainer.optimizers[0].param_groups) == 2
    assert isinstance(task.net, nn.Linear)
    torch.testing.assert_close(task.net.weight, torch.ones(1, 2), rtol=0, atol=1e-3)  # the target is the sum


def test_nothing_to_train_is_an_error() -> None:
    with pytest.raises(ValueError, match="no parameter has requires_grad, so there is nothing to optimise"):
        Fit(nn.Linear(2, 1).requires_grad_(False)).configure_optimizers()


def test_frozen_parameters_stay() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    net[0].requires_grad_(False)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    fit(Fit(net, partial(optim.AdamW, lr=0.1, weight_decay=0.5)))
    moved = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {"1.weight", "1.bias"}


def reference_rates(schedule: Callable[[optim.Optimizer], Any], num_steps: int, lr: float) -> list[float]:
    """The same schedule stepped by hand; one rate more than there are steps."""
    optimizer = optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr, momentum=0.9)
    scheduler, rates = schedule(optimizer), []
    for _ in range(num_steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return [*rates, optimizer.param_groups[0]["lr"]]


SGD = partial(optim.SGD, lr=0.01, momentum=0.9)


def test_one_cycle_gets_its_steps_from_the_trainer() -> None:
    _, rates = fit(Fit(optimizer=SGD, schedule=partial(OneCycleLR, max_lr=0.2)), num_samples=20, max_epochs=2)
    assert rates == reference_rates(partial(OneCycleLR, max_lr=0.2, total_steps=20), 20, lr=0.01)[:-1]
    assert rates[5] == max(rates) == pytest.approx(0.2)  # after 30 % of the steps


@pytest.mark.parametrize(
    "schedule",
    [
        partial(OneCycleLR, max_lr=0.2, total_steps=40),
        partial(OneCycleLR, max_lr=0.2, epochs=4, steps_per_epoch=10),
        lambda optimizer: OneCycleLR(optimizer, max_lr=0.2, total_steps=40),
    ],
    ids=["total_steps", "epochs and steps_per_epoch", "a function"],
)
def test_a_length_that_is_given_stays(schedule: Any) -> None:
    _, rates = fit(Fit(optimizer=SGD, schedule=schedule))
    assert rates == reference_rates(partial(OneCycleLR, max_lr=0.2, total_steps=40), 40, lr=0.01)[:5]


def test_warmup_cosine_ends_with_the_training_under_accumulation() -> None:
    """5 batches an epoch by twos are 3 steps, the last one of a single batch."""
    trainer, rates = fit(
        Fit(optimizer=partial(optim.SGD, lr=0.1), schedule=WarmupCosine), accumulate_grad_batches=2, max_epochs=4
    )
    expected = reference_rates(partial(WarmupCosine, total_steps=12), 12, lr=0.1)
    assert trainer.global_step == 12
    assert rates == expected[:-1]
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0, abs=1e-12)


def test_a_function_that_wants_the_total_steps_gets_them() -> None:
    got = []

    def schedule(optimizer: optim.Optimizer, total_steps: int) -> Any:
        got.append(total_steps)
        return StepLR(optimizer, total_steps)

    fit(Fit(schedule=schedule), max_steps=7, max_epochs=-1)
    assert got == [7]


def test_a_schedule_without_a_known_end_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"needs a known end, set --trainer\.max_epochs or --trainer\.max_steps"):
        fit(Fit(schedule=WarmupCosine), max_epochs=-1)


def test_an_epoch_schedule_moves_once_an_epoch() -> None:
    _, rates = fit(
        Fit(optimizer=partial(optim.SGD, lr=0.8), schedule=partial(StepLR, step_size=2, gamma=0.5)), max_epochs=5
    )
    assert rates == [0.8] * 10 + [0.4] * 10 + [0.2] * 5


def test_a_plateau_follows_the_validation() -> None:
    """Next to nothing is learnt at rate 1e-6, so every epoch after the patience cuts by ten."""
    schedule = partial(ReduceLROnPlateau, monitor="val/mse", patience=1)
    _, rates = fit(Fit(optimizer=partial(optim.SGD, lr=1e-6), schedule=schedule), num_samples=2, max_epochs=6)
    assert rates == pytest.approx([1e-6] * 3 + [1e-7] * 2 + [1e-8], abs=0)


def test_classes_chosen_on_the_command_line(cli: Cli) -> None:
    """There, AdamW's weight decay must not end up in SGD either, and the steps must be filled in."""
    done = cli(
        *("fit", "--model", "Classification", "--model.net", "MLP", "--model.net.widths", "[8]", "--data", "Digits"),
        *("--model.optimizer", "SGD", "--model.optimizer.lr", "0.1", "--model.optimizer.momentum", "0.9"),
        *("--model.schedule", "OneCycleLR", "--model.schedule.max_lr", "0.2", "--trainer.max_epochs", "2"),
        *("--trainer.limit_train_batches", "3", "--trainer.limit_val_batches", "1", "--run_dir", "run"),
    )
    assert done.code == 0, done.err
    checkpoint = torch.load("run/checkpoints/last.ckpt", weights_only=True)
    groups = checkpoint["optimizer_states"][0]["param_groups"]
    assert {(group["weight_decay"], group["initial_lr"] > 0, "betas" in group) for group in groups} == {
        (0, True, False)
    }
    assert checkpoint["lr_schedulers"][0]["total_steps"] == 6
    assert checkpoint["lr_schedulers"][0]["last_epoch"] == 6


class Difference(nn.Module):
    """Tells its two inputs apart."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.scale * (left - right)


def test_named_inputs_reach_the_net_by_name() -> None:
    task, left, right = Fit(Difference()), torch.randn(3, 1), torch.randn(3, 1)
    assert torch.equal(task({"right": right, "left": left}), left - right)
    assert torch.equal(task({"left": left, "right": right}), left - right)


def test_stages_measure_apart_and_leave_the_given_metrics_alone() -> None:
    given = MetricCollection({"mse": MeanSquaredError()})
    task = Task(nn.Linear(2, 1), None, None, given)
    assert list(given) == ["mse"]
    stages = [task.train_metrics, task.val_metrics, task.test_metrics]
    assert [set(stage) for stage in stages] == [{f"{stage}/loss", f"{stage}/mse"} for stage in ("train", "val", "test")]
    task.val_metrics.update(preds=torch.ones(2), target=torch.zeros(2), value=torch.tensor(5.0), weight=2)
    assert task.val_metrics.compute() == {"val/mse": 1.0, "val/loss": 5.0}
    assert [metric._update_count for stage in (given, stages[0], stages[2]) for metric in stage.values()] == [0] * 5


def test_epoch_metrics_are_those_of_the_samples_whatever_the_batches() -> None:
    """At rate 0 an epoch of training measures one set of weights, too; 11 samples by 4 leave 3."""
    task = Fit(optimizer=partial(optim.SGD, lr=0.0))
    trainer = Trainer(**UNSAVED, max_epochs=2)  # the second epoch would show what the first left behind
    trainer.fit(task, loader(11, 4), loader(9, 4))
    logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
    logged |= trainer.test(task, loader(7, 4), verbose=False)[0]
    for stage, num_samples in (("train", 11), ("val", 9), ("test", 7)):
        pairs = [(task(x).double().item(), target.double().item()) for x, target in samples(num_samples)]
        expected = sum((output - target) ** 2 for output, target in pairs) / num_samples
        assert logged[f"{stage}/loss"] == pytest.approx(expected, rel=1e-6)
        assert logged[f"{stage}/mse"] == pytest.approx(expected, rel=1e-6)


class Memory(Logger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    @property
    def name(self) -> str:
        return "memory"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, metrics))


def test_the_loss_of_a_step_is_logged_when_a_step_is_due() -> None:
    task, memory = Fit(optimizer=partial(optim.SGD, lr=0.0)), Memory()
    trainer = Trainer(**{**UNSAVED, "logger": memory}, max_epochs=1, log_every_n_steps=2)
    batches = loader(10, 2)
    trainer.fit(task, batches, loader(4, 4))
    losses = [mse_loss(task(inputs)[:, 0], target).item() for inputs, target in batches]
    logged = [(step, row["train/loss_step"]) for step, row in memory.rows if "train/loss_step" in row]
    assert logged == [(1, losses[1]), (3, losses[3])]


def test_hyperparameters_of_a_task_made_in_python_hold_plain_values(tmp_path: Path) -> None:
    task = Fit(nn.Linear(2, 1), partial(optim.AdamW, lr=0.1), partial(StepLR, step_size=2))
    assert dict(task.hparams) == {}
    trainer, _ = fit(task)
    trainer.save_checkpoint(tmp_path / "fit.ckpt")
    torch.load(tmp_path / "fit.ckpt", weights_only=True)
    loaded = Fit.load_from_checkpoint(tmp_path / "fit.ckpt", net=nn.Linear(2, 1))
    x = torch.randn(3, 2)
    assert torch.equal(loaded(x), task(x))


# how many samples of each class the training set has


class Table(LightningDataModule):
    """Somebody's own data module, which knows nothing of facts."""

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self.dataset = dataset

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.dataset, batch_size=2)


class Named(Table):
    """The same with a training set under the name that Data has for it."""

    def __init__(self, dataset: Any, balanced: bool = False) -> None:
        super().__init__(dataset)
        self.train_set, self.balanced = dataset, balanced


def counts(data: Any, **facts: Any) -> list[int]:
    task = Fit()
    task.facts = facts
    task.trainer = SimpleNamespace(datamodule=data)  # type: ignore[assignment]  # what is asked of one
    return task.class_counts(4)


LISTED = TensorDataset(torch.zeros(5, 2), torch.tensor([2, 0, 2, 2, 1]))


def test_classes_are_counted_by_targets_or_told_by_facts() -> None:
    assert counts(Table(LISTED)) == counts(Named(LISTED)) == [1, 1, 3, 0]
    assert counts(Named(LISTED), class_counts=[9, 9, 9, 9]) == [1, 1, 3, 0], "facts may come from a checkpoint"
    assert counts(Named(samples(3)), class_counts=[2, 1, 0, 0]) == [2, 1, 0, 0]
    assert counts(Table(samples(3)), class_counts=[2, 1, 0, 0]) == [2, 1, 0, 0]
    assert counts(None, class_counts=[2, 1, 0, 0]) == [2, 1, 0, 0]


@pytest.mark.parametrize(("data", "name"), [(Table(samples(3)), "Table"), (None, "the DataLoader")])
def test_data_that_tells_no_counts_is_an_error_that_says_what_to_do(data: Any, name: str) -> None:
    with pytest.raises(UserError, match=f"which {name} does not provide; set self.facts..class_counts..* by name"):
        counts(data)


def test_balanced_data_needs_no_weights() -> None:
    with pytest.raises(UserError, match=r"auto and --data\.balanced true both compensate for rare classes"):
        counts(Named(LISTED, balanced=True))


def test_a_program_in_the_place_of_the_net_is_evaluated_without_the_rules_for_its_parameters() -> None:
    task = Fit()
    task.parameter_rules = read_rules([{"pattern": "net.weight", "weight_decay": 0.1}])
    expected = Trainer(**UNSAVED).validate(task, loader(4, 2), verbose=False)
    net = task.net

    class Program(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return net(x)

    task.use_program(Program())
    assert Trainer(**UNSAVED).validate(task, loader(4, 2), verbose=False) == expected


def test_dimensions_that_vary_are_named_for_each_input() -> None:
    class Two(nn.Module):
        def forward(self, features: Tensor, edges: Tensor) -> Tensor:
            return features.sum(dim=(1, 2)) + edges.sum(dim=(1, 2))

    task = Fit(Two())
    batch = {"features": torch.zeros(2, 5, 3), "edges": torch.zeros(2, 2, 4)}, torch.zeros(2)
    task.program_dims = {"features": {1: "N"}, "edges": {2: "E"}}
    assert build_program(task, [batch], {}).shapes == {"features": ["B", "N", 3], "edges": ["B", 2, "E"]}
    task.program_dims = {1: "T"}
    assert build_program(task, [batch], {}).shapes == {"features": ["B", "T", 3], "edges": ["B", "T", 4]}
