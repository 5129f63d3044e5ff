"""Regression against scikit-learn and closed forms, in the target's own units."""

import copy
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from sklearn.metrics import mean_absolute_error, mean_pinball_loss, mean_squared_error, r2_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from playbook.deploy.program import build_program
from playbook.errors import UserError
from playbook.testing.command import UNSAVED
from playbook.testing.gradients import assert_same_steps, step_gradients
from playbook.testing.gradients import random_split as random_batches
from src.tasks.regression import Regression
from tests.tasks.reports import assert_means, report_of

MEAN, STD = 200_000.0, 80_000.0  # dollars
LEVELS = [0.1, 0.5, 0.9]


def samples(num_samples: int, dtype: torch.dtype = torch.float32) -> TensorDataset:
    """Inputs, and targets in dollars that are a linear function of them, with noise."""
    generator = torch.Generator().manual_seed(0)
    x, noise = torch.randn(num_samples, 4, generator=generator), torch.randn(num_samples, generator=generator)
    target = MEAN + STD * (x @ torch.tensor([0.6, -0.5, 0.3, 0.0]) + 0.4 * noise)
    return TensorDataset(x.to(dtype), target.to(dtype))


def loader(data: Any, batch_size: int = 4, **options: Any) -> DataLoader:
    return DataLoader(data, batch_size=batch_size, **options)


def linear(num_outputs: int = 1) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, num_outputs)


def scaled(net: nn.Module | None = None, **options: Any) -> Regression:
    """A task that knows the units, as after setup with the facts of the data."""
    task = Regression(net or linear(), **options)
    task.facts = {"target_mean": MEAN, "target_std": STD, "target_name": "price"}
    task.setup("fit")
    return task


def arrays(task: Regression, data: TensorDataset) -> tuple[np.ndarray, np.ndarray]:
    """Standardised outputs of the net and targets, in float64."""
    inputs, target = data.tensors
    outputs = copy.deepcopy(task.net).double()(inputs.double()).detach().numpy()
    return outputs, (target.double().numpy() - MEAN) / STD


# losses and metrics


@pytest.mark.parametrize("shape", ["(B, 1)", "(B,)"])
@pytest.mark.parametrize(("num_samples", "batch_size"), [(11, 4), (9, 8), (3, 5)])
def test_metrics_are_exact_over_uneven_batches(num_samples: int, batch_size: int, shape: str) -> None:
    net = linear() if shape == "(B, 1)" else nn.Sequential(linear(), nn.Flatten(0))
    task, data = scaled(net), samples(num_samples)
    [found] = Trainer(**UNSAVED).test(task, loader(data, batch_size), verbose=False)
    outputs, target = arrays(task, data)
    value, truth = MEAN + STD * outputs.reshape(-1), MEAN + STD * target
    assert found == pytest.approx(
        {
            "test/loss": mean_squared_error(target, outputs.reshape(-1)),
            "test/rmse": mean_squared_error(truth, value) ** 0.5,
            "test/mae": mean_absolute_error(truth, value),
            "test/r2": r2_score(truth, value),
        },
        rel=1e-5,
    )


def huber(error: np.ndarray, delta: float) -> np.ndarray:
    size = np.abs(error)
    return np.where(size < delta, error**2 / 2, delta * (size - delta / 2))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"loss": "mse"}, lambda error: error**2),
        ({"loss": "l1"}, np.abs),
        ({"loss": "huber"}, lambda error: huber(error, 1.0)),
        ({"loss": "huber", "huber_delta": 0.3}, lambda error: huber(error, 0.3)),
    ],
)
def test_losses_by_their_formulas(options: dict[str, Any], expected: Any) -> None:
    task, data = scaled(**options), samples(23)
    [found] = Trainer(**UNSAVED).validate(task, loader(data), verbose=False)
    outputs, target = arrays(task, data)
    assert found["val/loss"] == pytest.approx(expected(outputs[:, 0] - target).mean(), rel=1e-5)


def test_quantiles_are_measured_as_by_scikit_learn() -> None:
    """The outputs of the random net cross, and are sorted."""
    task, data = scaled(linear(3), loss="quantile", quantiles=LEVELS), samples(61)
    [found] = Trainer(**UNSAVED).test(task, loader(data), verbose=False)
    outputs, target = arrays(task, data)
    assert (np.diff(outputs) < 0).any()
    ordered = np.sort(outputs)
    pinball = [mean_pinball_loss(target, ordered[:, i], alpha=level) for i, level in enumerate(LEVELS)]
    inside = (ordered[:, 0] <= target) & (target <= ordered[:, 2])
    assert 0 < inside.mean() < 1
    assert found["test/loss"] == pytest.approx(np.mean(pinball), rel=1e-5)
    assert found["test/coverage"] == pytest.approx(inside.mean())
    assert found["test/rmse"] == pytest.approx(STD * mean_squared_error(target, ordered[:, 1]) ** 0.5, rel=1e-5)


def test_quantiles_of_a_distribution_are_learnt() -> None:
    """Outputs that depend on no input converge to the quantiles of the targets."""
    generator = torch.Generator().manual_seed(0)
    target = MEAN + STD * torch.randn(1000, generator=generator)
    batches: Any = [(torch.zeros(1000, 4), target)] * 150
    optimizer: Any = lambda parameters: torch.optim.Adam(parameters, lr=0.03)  # noqa: E731
    task = scaled(linear(3), loss="quantile", quantiles=LEVELS, optimizer=optimizer)
    trainer = Trainer(**UNSAVED, max_epochs=1, num_sanity_val_steps=0)
    trainer.fit(task, DataLoader(batches, batch_size=None), DataLoader(batches[:1], batch_size=None))
    found = task(torch.zeros(1, 4))[0].detach()
    expected = target.quantile(torch.tensor(LEVELS))
    assert ((found - expected).abs() < 0.05 * STD).all(), f"{found.tolist()}, expected {expected.tolist()}"
    assert trainer.callback_metrics["val/coverage"] == pytest.approx(0.8, abs=0.03)


def test_least_squares_are_learnt_whatever_the_unit() -> None:
    inputs, target = samples(60).tensors
    weights = []
    design = np.column_stack([inputs.double().numpy(), np.ones(60)])
    expected = np.linalg.lstsq(design, target.double().numpy(), rcond=None)[0]
    for unit in (1.0, 1000.0):
        task = Regression(linear(), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.3))
        task.facts = {"target_mean": MEAN / unit, "target_std": STD / unit}
        batches: Any = DataLoader([(inputs, target / unit)] * 100, batch_size=None)  # type: ignore[arg-type]  # a list
        Trainer(**UNSAVED, max_epochs=1, num_sanity_val_steps=0).fit(task, batches, batches)
        value = task(torch.cat([torch.eye(4), torch.zeros(1, 4)])).detach().double().numpy() * unit
        weights.append([*(value[:4] - value[4]), value[4]])
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-4, atol=1e-4 * STD)
    np.testing.assert_allclose(weights[0], expected, atol=1e-3 * STD)


@pytest.mark.parametrize(
    ("targets", "outputs", "expected"),
    [
        ([3.0], [1.0], 0.0),
        ([3.0], [3.0], 1.0),
        ([0.7] * 50, [0.5] * 50, 0.0),
        ([0.7] * 50, [0.7] * 50, 1.0),
        ([1e-5, -1e-5, 3e-5], [0.0, 0.0, 0.0], None),
        ([2010.0, 2020.0, 1990.0], [2015.0, 2010.0, 1995.0], None),
    ],
)
def test_r2_of_constant_tiny_and_distant_targets(
    targets: list[float], outputs: list[float], expected: float | None
) -> None:
    task = Regression(nn.Identity())
    data = TensorDataset(torch.tensor(outputs)[:, None], torch.tensor(targets))
    [found] = Trainer(**UNSAVED).test(task, loader(data, 2), verbose=False)
    assert found["test/r2"] == pytest.approx(r2_score(targets, outputs) if expected is None else expected, rel=1e-3)


# units


class _Module(LightningDataModule):
    """A user's data module without facts."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self.data = data

    def train_dataloader(self) -> DataLoader:
        return loader(self.data, 20)

    def val_dataloader(self) -> DataLoader:
        return loader(self.data, 20)


class Listed(torch.utils.data.Dataset):
    """A data set that lists its targets, one of which is not known."""

    def __init__(self) -> None:
        self.targets = [1.0, 2.0, float("nan"), 6.0]

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, float]:
        return torch.ones(4), self.targets[index]


@pytest.mark.parametrize("kind", ["tensors", "subset", "list"])
def test_mean_and_deviation_of_the_training_targets(kind: str) -> None:
    data: Any = samples(30) if kind != "list" else Listed()
    targets = data.tensors[1] if kind != "list" else torch.tensor([1.0, 2.0, 6.0])
    if kind == "subset":
        data, _ = random_split(data, [20, 10], torch.Generator().manual_seed(0))
        targets = targets[torch.tensor(list(data.indices))]
    task = Regression(linear())
    task.trainer = Trainer(**UNSAVED)
    task.trainer.datamodule = _Module(data)  # type: ignore[attr-defined]  # as fit sets it
    task.setup("fit")
    assert task.units.mean.item() == pytest.approx(targets.mean().item())
    assert task.units.std.item() == pytest.approx(targets.std(correction=0).item())


def test_targets_without_known_units_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    data = samples(8)
    for task in (Regression(linear()), scaled()):
        trainer = Trainer(**UNSAVED, max_steps=1, num_sanity_val_steps=0)
        trainer.fit(task, loader(data, 8), loader(data, 8))
    lines = capsys.readouterr().err.splitlines()
    [line] = [line for line in lines if line.startswith("warning: targets")]
    mean, std = data.tensors[1].mean().item(), data.tensors[1].std(correction=0).item()
    assert line == (
        "warning: targets are not standardised, as DataLoader has no facts target_mean and target_std; "
        f"in the first batch, they are {mean:.4g} ± {std:.4g}"
    )


def test_a_checkpoint_predicts_in_its_own_units_without_the_data(tmp_path: Path) -> None:
    task, data = scaled(linear(3), loss="quantile", quantiles=LEVELS), samples(8)
    trainer = Trainer(**UNSAVED, max_steps=1)
    trainer.fit(task, loader(data), loader(data))
    trainer.save_checkpoint(tmp_path / "task.ckpt")
    loaded = Regression.load_from_checkpoint(tmp_path / "task.ckpt", net=nn.Linear(4, 3))
    assert (loaded.loss, loaded.quantiles) == ("quantile", LEVELS)
    loaded.facts = {"target_mean": 0.0, "target_std": 1.0}  # of other data, on which it is tested
    loaded.setup("test")
    assert torch.equal(loaded(data.tensors[0]), task(data.tensors[0]))
    assert loaded(data.tensors[0]).mean() > 1000


@pytest.mark.parametrize("precision", ["bf16-true", "bf16-mixed"])
def test_half_precision_keeps_the_units(precision: Any) -> None:
    """float16 would end at 65,504, and bfloat16 would make 200,000 of 199,680."""
    task, data = scaled(), samples(8)
    dtype = torch.bfloat16 if precision == "bf16-true" else torch.float32
    batches = loader(TensorDataset(data.tensors[0].to(dtype), data.tensors[1]))
    trainer = Trainer(**UNSAVED, max_steps=1, precision=precision)
    trainer.fit(task, batches, batches)
    assert (task.units.mean.item(), task.units.std.item()) == (MEAN, STD)
    predictions: Any = trainer.predict(task, batches)
    value = torch.cat([batch["value"] for batch in predictions])
    outputs = task.net(data.tensors[0].to(task.net.weight.dtype)).double()[:, 0]  # type: ignore[union-attr]
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), MEAN + STD * outputs, rtol=0, atol=0.02 * STD)
    [found] = trainer.validate(task, batches, verbose=False)
    error = (value - data.tensors[1]).double().square().mean().sqrt().item()
    # with bf16-true, Lightning rounds the batch and what is logged
    assert found["val/rmse"] == pytest.approx(error, rel=1e-5 if precision == "bf16-mixed" else 5e-3)


def test_units_of_float16_are_not_infinite() -> None:
    assert scaled().half().units.mean.item() == MEAN
    assert scaled().double().units.std.item() == STD


# predictions


def test_predictions_and_answers() -> None:
    task, data = scaled(linear(2), loss="quantile", quantiles=[0.25, 0.5]), samples(7)
    batches: Any = Trainer(**UNSAVED).predict(task, loader(data))
    assert [set(batch) for batch in batches] == [{"value", "quantiles", "target"}] * 2
    outputs, _ = arrays(task, data)
    expected = MEAN + STD * np.sort(outputs)
    answers = [answer for batch in batches for answer in task.answer(batch, {})]
    for answer, row, target in zip(answers, expected, data.tensors[1].tolist(), strict=True):
        assert list(answer) == ["value", "value_0.25", "value_0.5", "target"]
        assert answer == pytest.approx(
            {"value": row[1], "value_0.25": row[0], "value_0.5": row[1], "target": target}, rel=1e-5
        )


@pytest.mark.parametrize("unknown", [torch.tensor([-1, -1]), torch.tensor([float("nan")] * 2)])
def test_unknown_targets_are_left_out_of_answers(unknown: Tensor) -> None:
    outputs = scaled().predict_step((torch.zeros(2, 4), unknown), 0)
    assert outputs["target"].isnan().all()
    assert [list(answer) for answer in scaled().answer(outputs, {})] == [["value"]] * 2


def test_a_target_of_minus_one_is_known_if_it_is_no_integer() -> None:
    outputs = scaled().predict_step((torch.zeros(1, 4), torch.tensor([-1.0])), 0)
    assert scaled().answer(outputs, {})[0]["target"] == -1


def test_the_test_returns_value_and_target() -> None:
    task, data = scaled(linear(3), loss="quantile", quantiles=LEVELS), samples(4)
    task.trainer = Trainer(**UNSAVED)
    inputs, target = data.tensors
    outputs = task.test_step((inputs, target), 0)
    assert torch.equal(outputs["value"], task(inputs)[:, 1])
    assert torch.equal(outputs["target"], target)


@pytest.mark.parametrize("quantiles", [None, LEVELS])
def test_the_report_is_in_own_units(quantiles: list[float] | None) -> None:
    options: Any = {} if quantiles is None else {"loss": "quantile", "quantiles": quantiles}
    task, data = scaled(linear(1 if quantiles is None else 3), **options), samples(23)
    report, logged, _ = report_of(task, loader(data))
    assert_means(report, logged, {"mae"} | ({"coverage"} if quantiles else set()))
    outputs, truth = arrays(task, data)
    values, target = MEAN + STD * np.sort(outputs, axis=1), MEAN + STD * truth
    value = values[:, values.shape[1] // 2]
    assert report.samples["mse"].double().mean().item() == pytest.approx(mean_squared_error(target, value), rel=1e-5)
    np.testing.assert_allclose(report.rankings["Largest errors"], abs(value - target), rtol=1e-3)
    shares = [row["targets at or below"] for row in report.tables.get("Quantiles", [])]
    assert shares == pytest.approx((target[:, None] <= values).mean(axis=0) if quantiles else [])
    assert sum(row["samples"] for row in report.tables["Errors by target"]) == 23
    axes = report.figures["Residuals over predictions"][0].axes[0]
    np.testing.assert_allclose(
        np.asarray(axes.collections[0].get_offsets()), np.stack([value, value - target], axis=1), rtol=1e-3, atol=1
    )
    assert report.figures["Predicted over target"][0].axes[0].get_xlabel() == "price"


class Named(nn.Module):
    """A net with named inputs, one of which may be missing."""

    def __init__(self, num_outputs: int = 1) -> None:
        super().__init__()
        self.linear = linear(num_outputs)

    def forward(self, numbers: Tensor, extra: Tensor | None = None) -> Tensor:
        return self.linear(numbers if extra is None else numbers + extra)


@pytest.mark.parametrize("quantiles", [None, LEVELS])
def test_the_exported_program_has_the_inputs_of_the_net_and_outputs_in_own_units(quantiles: Any) -> None:
    options: Any = {} if quantiles is None else {"loss": "quantile", "quantiles": quantiles}
    task, data = scaled(Named(1 if quantiles is None else 3), **options).eval(), samples(6)
    inputs = {"numbers": data.tensors[0]}
    assert list(signature(task.program().forward).parameters) == ["numbers", "extra"]
    program = build_program(task, [(inputs, data.tensors[1])], {})
    assert list(program.shapes) == ["numbers"]
    assert program.outputs == ["value", *(f"value_{level}" for level in quantiles or [])]
    graph = torch.export.export(program.module, (), inputs, dynamic_shapes={"numbers": {0: torch.export.Dim("B")}})
    outputs: Any = graph.module()(numbers=data.tensors[0][:3])
    flat = list(outputs) if quantiles else [outputs]
    answers = task.answer(task.predict_step(({"numbers": data.tensors[0][:3]}, torch.full((3,), -1)), 0), {})
    for name, column in zip(program.outputs, flat, strict=True):
        assert column.tolist() == pytest.approx([answer[name] for answer in answers], rel=1e-6)
    [before] = Trainer(**UNSAVED).validate(task, loader(_named(data)), verbose=False)
    task.use_program(program.module)
    [after] = Trainer(**UNSAVED).validate(task, loader(_named(data)), verbose=False)
    assert after == pytest.approx(before, rel=1e-5)


def _named(data: TensorDataset) -> list[Any]:
    return [({"numbers": x}, target) for x, target in zip(*data.tensors, strict=True)]


# ensembles


class Ensemble(nn.Module):
    """Linear regressions, each with the inputs of all (B, 4) or its own (B, k, 4)."""

    def __init__(self, num_outputs: int = 1, members: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(members, 4, num_outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = x if x.ndim == 3 else x[:, None].expand(-1, len(self.weight), -1)
        values = torch.einsum("bkd,kdq->bkq", x, self.weight)  # (B, k, Q)
        return values if self.training else values.mean(1)


def own_rows(is_own: bool) -> tuple[Tensor, Tensor]:
    inputs, target = samples(23, torch.float64).tensors
    if not is_own:
        return inputs, target
    orders = [torch.randperm(23, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    return torch.stack([inputs[order] for order in orders], 1), torch.stack([target[order] for order in orders], 1)


def ensemble(quantiles: list[float] | None) -> Regression:
    still: Any = lambda parameters: torch.optim.SGD(parameters, lr=0.0)  # noqa: E731
    options: Any = {} if quantiles is None else {"loss": "quantile", "quantiles": quantiles}
    return scaled(Ensemble(len(quantiles or [0.5])), optimizer=still, **options).double()


@pytest.mark.parametrize("quantiles", [None, LEVELS])
@pytest.mark.parametrize("is_own", [False, True])
def test_the_loss_of_an_ensemble_is_the_mean_of_its_members(is_own: bool, quantiles: Any) -> None:
    task, rows = ensemble(quantiles), own_rows(is_own)
    trainer = Trainer(**UNSAVED, max_epochs=1, num_sanity_val_steps=0)
    trainer.fit(task, loader(TensorDataset(*rows)), loader(TensorDataset(*own_rows(False))))
    losses = []
    for i, weight in enumerate(task.net.weight):  # type: ignore[arg-type]  # of Ensemble
        x, y = (rows[0][:, i], rows[1][:, i]) if is_own else rows
        outputs, target = (x @ weight).detach().numpy(), (y.numpy() - MEAN) / STD
        pairs = enumerate(quantiles or [])
        pinball = [mean_pinball_loss(target, outputs[:, number], alpha=level) for number, level in pairs]
        losses.append(np.mean(pinball) if quantiles else mean_squared_error(target, outputs[:, 0]))
    assert trainer.callback_metrics["train/loss"] == pytest.approx(np.mean(losses), rel=1e-6)


@pytest.mark.parametrize("is_own", [False, True])
def test_a_step_is_the_same_however_it_is_split(is_own: bool) -> None:
    batches, large = random_batches(own_rows(is_own), 0, 3)
    found = step_gradients(ensemble(LEVELS), batches, 3, num_parts=2)
    assert_same_steps(found, step_gradients(ensemble(LEVELS), large, weighed=False))


# mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "rmse"}, "loss: expected one of mse, l1, huber, quantile, got rmse"),
        ({"huber_delta": 0.0}, "huber_delta: expected a number above 0, got 0.0"),
        ({"loss": "quantile"}, r"quantiles: expected levels, as in \[0.1, 0.5, 0.9\], for loss quantile, got None"),
        ({"quantiles": [0.5]}, r"quantiles: expected none without loss quantile, got \[0.5\] and loss mse"),
        ({"loss": "quantile", "quantiles": []}, r"quantiles: expected ascending levels in \(0, 1\)"),
        ({"loss": "quantile", "quantiles": [0.9, 0.1]}, r"quantiles: expected ascending .*, got \[0.9, 0.1\]"),
        ({"loss": "quantile", "quantiles": [0.5, 0.5]}, r"quantiles: expected ascending .*, got \[0.5, 0.5\]"),
        ({"loss": "quantile", "quantiles": [0.5, 1.0]}, r"quantiles: expected ascending .*, got \[0.5, 1.0\]"),
    ],
)
def test_arguments_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Regression(linear(), **options)


def test_an_ensemble_that_averages_probabilities_has_no_quantiles() -> None:
    net = linear(2)
    net.average = "probabilities"  # type: ignore[assignment]  # as TabM has it
    with pytest.raises(ValueError, match=r"quantiles: expected --model.net.average values, got prob"):
        Regression(net, loss="quantile", quantiles=[0.1, 0.9])


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            lambda: scaled(linear(10)),
            r"net: expected a net with outputs of shape \(B, 1\), it returned \(4, 10\); set ",
        ),
        (
            lambda: scaled(linear(1), loss="quantile", quantiles=LEVELS),
            r"quantiles: expected .* shape \(B, 3\), it returned \(4, 1\); set the net's num_classes to 3",
        ),
        (lambda: scaled(nn.Unflatten(1, (4, 1))), r"net: expected .* shape \(B, 1\), it returned \(4, 4, 1\)"),
    ],
)
@pytest.mark.parametrize("verb", ["test", "predict"])
def test_a_net_with_other_outputs(verb: str, task: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        getattr(Trainer(**UNSAVED), verb)(task(), loader(samples(4)))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.tensor([1.0, float("nan"), 2.0]), "targets: expected finite numbers of price, got nan"),
        (torch.tensor([1.0, float("inf"), 2.0]), "targets: expected finite numbers of price, got inf"),
        (torch.zeros(3, 1), r"targets: expected one number for each sample, \(3,\), got \(3, 1\)"),
        (torch.zeros(3, 2), r"targets: expected one number for each sample, \(3,\), got \(3, 2\)"),
    ],
)
def test_targets_that_do_not_fit(target: Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Trainer(**UNSAVED).test(scaled(), loader(TensorDataset(torch.zeros(3, 4), target)), verbose=False)


def test_classes_in_place_of_numbers() -> None:
    task = scaled(linear(7))  # as the facts of the data make it
    task.facts["classes"] = [f"c{number}" for number in range(7)]
    message = "targets: expected numbers, got the classes c0, c1, c2, c3, c4 and 2 more; set --data.target_kind number"
    with pytest.raises(UserError, match=message):
        Trainer(**UNSAVED).test(task, loader(TensorDataset(torch.zeros(3, 4), torch.arange(3))), verbose=False)


def test_whole_numbers_are_numbers() -> None:
    task = Regression(nn.Identity())
    data = TensorDataset(torch.tensor([[1.0], [4.0]]), torch.tensor([2, 4]))
    [found] = Trainer(**UNSAVED).test(task, loader(data), verbose=False)
    assert found["test/mae"] == 0.5
