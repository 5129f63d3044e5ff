"""Regression: a number for every sample, or quantiles of it."""

import math
import sys
from functools import wraps
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss, l1_loss, mse_loss
from torch.utils.data import Subset, TensorDataset
from torchmetrics import MeanAbsoluteError, MeanMetric, MeanSquaredError, Metric, MetricCollection

from playbook import OptimizerFactory, ScheduleFactory, Task, TestReport, UserError, require_room
from src.ops.losses import precise
from src.ops.members import flatten_members
from src.ops.result_charts import error_rows, histogram, quantile_rows, scatter

UNKNOWN = -1  # the target of an unlabelled sample, if it is an integer
LOSSES = ("mse", "l1", "huber", "quantile")
Batch = tuple[Tensor | dict[str, Tensor], Tensor]


class Regression(Task):
    """Predicts a number for each sample, measured in the target's own units by RMSE, MAE and R².

    The net returns standardised values: its outputs are multiplied by the standard deviation of the training targets
    and added to their mean, which are the facts `target_mean` and `target_std` of the data, or else come from the
    `targets` of its training set, and are saved with the weights. Without either, they are 0 and 1. The loss is
    computed on standardised values, so the learning rate does not depend on the unit.

    With quantiles, the prediction is the one nearest to 0.5, the lower of two. `coverage` is the share of targets from
    the lowest to the highest quantile. Quantiles that cross are sorted in evaluation and prediction, but not for the
    training loss.

    In training, a net with k members, such as TabM, returns the values of each (B, k, 1) or (B, k, Q). The loss and the
    training metrics are then means over the members. Targets may be different for each member, (B, k), as its inputs
    may be.

    Args:
        net: maps the inputs to standardised values (B, 1) or (B,), or (B, Q) for Q quantiles.
        loss: mse, the squared error; l1, the absolute error; huber, quadratic for small and linear for large errors
            (Huber 1964); quantile, the pinball loss (Koenker and Bassett 1978), averaged over the quantiles.
        quantiles: levels for loss quantile, in (0, 1) and ascending, as in [0.1, 0.5, 0.9]; the net needs an output for
            each.
        huber_delta: error from which on the Huber loss is linear, in standard deviations of the target, above 0.
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3 and
            weight_decay=0.01.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name; the last matching rule applies. Each has a `pattern` such as
            net.stem.*, and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in
            [{pattern: net.head, lr_factor: 10}].

    Raises:
        ValueError: a value is out of range, the net has another number of outputs, or targets are classes or not
            finite.
    """

    monitor, monitor_mode = "val/rmse", "min"

    def __init__(
        self,
        net: nn.Module,
        loss: Literal["mse", "l1", "huber", "quantile"] = "mse",
        quantiles: list[float] | None = None,
        huber_delta: float = 1.0,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        parameter_groups: list[dict[str, Any]] | None = None,
    ) -> None:
        if loss not in LOSSES:
            raise ValueError(f"loss: expected one of {', '.join(LOSSES)}, got {loss}")
        if not 0 < huber_delta < math.inf:
            raise ValueError(f"huber_delta: expected a number above 0, got {huber_delta}")
        if (loss == "quantile") != (quantiles is not None):
            expected = "levels, as in [0.1, 0.5, 0.9], for" if quantiles is None else "none without"
            raise ValueError(f"quantiles: expected {expected} loss quantile, got {quantiles} and loss {loss}")
        if quantiles is not None:
            _check_levels(quantiles, net)
        metrics: dict[str, Metric | MetricCollection] = {
            "rmse": MeanSquaredError(squared=False),
            "mae": MeanAbsoluteError(),
            "r2": _R2(),
        }
        if quantiles is not None:
            metrics["coverage"] = _Coverage()
        super().__init__(net, optimizer, schedule, MetricCollection(metrics), parameter_groups)
        self.loss = self.loss_name = loss
        self.quantiles = quantiles
        self.huber_delta = huber_delta
        self.units = _Units(quantiles)
        self.exported: nn.Module | None = None  # evaluates in place of the net
        self.program_outputs = ("value", *self._quantile_names())

    def setup(self, stage: str) -> None:
        require_room(self.net, self.facts)
        if stage != "fit":  # later, the units are those of the weights, whatever the data
            return
        if "target_mean" in self.facts and "target_std" in self.facts:
            self.units.set(self.facts["target_mean"], self.facts["target_std"])
        elif (targets := _listed_targets(_training_set(self.trainer))) is not None:
            self.units.set(targets.mean().item(), targets.std(correction=0).item())

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Says if the targets of the first batch seem to need the mean and deviation that the data does not tell."""
        if batch_idx or self.current_epoch or not self.trainer.is_global_zero or self.units.are_set:
            return
        target = precise(batch[1])
        mean, std = target.mean().item(), target.std(correction=0).item()
        if abs(mean) > 10 or std > 10:
            name = type(getattr(self.trainer, "datamodule", None) or self.trainer.train_dataloader).__name__
            text = f"targets are not standardised, as {name} has no facts target_mean and target_std"
            print(f"warning: {text}; in the first batch, they are {mean:.4g} ± {std:.4g}", file=sys.stderr)

    def forward(self, inputs: Tensor | dict[str, Tensor]) -> Tensor:
        """Predictions in the target's own units: (B,), or quantiles (B, Q), ascending."""
        return self.units(self._standardised(inputs))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss, _ = self._step("train", batch, batch_idx)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch, batch_idx)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: `value` and `target` (B,), and `quantiles` (B, Q) if there are any."""
        _, outputs = self._step("test", batch, batch_idx)
        values = self.units(outputs)
        predictions = {"value": self.units.point(values), "target": batch[1]}
        return predictions if self.quantiles is None else predictions | {"quantiles": values}

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: `value` (B,), `quantiles` (B, Q) if there are any, and the `target` (B,), NaN if unknown."""
        inputs, target = batch
        values = self(inputs)
        known = precise(target)
        if not target.is_floating_point():
            known = known.masked_fill(target == UNKNOWN, math.nan)
        predictions = {"value": self.units.point(values), "target": known}
        return predictions if self.quantiles is None else predictions | {"quantiles": values}

    def answer(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Names the numbers of each sample: `value`, quantiles such as `value_0.9`, and `target` if it is known.

        Args:
            outputs: returned by predict_step.
            facts: learnt from the training data.
        """
        columns = {"value": outputs["value"]}
        if "quantiles" in outputs:
            columns |= dict(zip(self._quantile_names(), outputs["quantiles"].unbind(dim=1), strict=True))
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        answers: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in rows]
        for answer, target in zip(answers, outputs["target"].tolist(), strict=True):
            if not math.isnan(target):
                answer["target"] = target
        return answers

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        """How large errors are, for which targets, and which samples have the largest; in the target's own units.

        Args:
            outputs: of test_step, for all test samples.
            facts: with `target_name`, if it is known.
        """
        value, target = precise(outputs["value"]), precise(outputs["target"])
        error = value - target
        size = error.abs()
        name = facts.get("target_name", "target")
        report = TestReport(
            samples={"mae": size, "mse": error.square()},
            rankings={"Largest errors": size},
            tables={"Errors by target": error_rows(value, target)},
            figures={
                "Predicted over target": (
                    scatter(target, value, name, "predicted"),
                    f"The mean absolute error of {len(target):,} test samples is {float(size.mean()):.4g}",
                ),
                "Residuals over predictions": (
                    scatter(value, error, "predicted", "predicted - target", slope=0.0),
                    f"Predictions are {float(error.mean()):.4g} above their targets on average",
                ),
                "Residuals": (
                    histogram(error, "predicted - target"),
                    f"The standard deviation of the errors is {float(error.std(correction=0)):.4g}",
                ),
            },
        )
        if self.quantiles is not None:
            quantiles = outputs["quantiles"]
            covered = (quantiles[:, 0] <= target) & (target <= quantiles[:, -1])
            report.samples["coverage"] = covered.float()
            report.tables["Quantiles"] = quantile_rows(self.quantiles, (target[:, None] <= quantiles).float())
        return report

    def program(self) -> nn.Module:
        """The net's inputs → `value` (B,), and each quantile (B,), in the target's own units."""
        return _program(self.net, self.units)

    def postprocessing(self, facts: dict[str, Any]) -> dict[str, Any]:
        return {"kind": "values"}

    def use_program(self, program: nn.Module) -> None:
        self.exported = program

    def _step(self, stage: str, batch: Batch, batch_idx: int) -> tuple[Tensor, Tensor]:
        """The mean loss, and the net's standardised outputs."""
        inputs, target = batch
        self._require_numbers(target)
        outputs = self._standardised(inputs)
        if batch_idx == 0 or target.device.type == "cpu":  # elsewhere, looking at all would wait for the device
            self._check(outputs, target)
        standardised = self.units.standardise(target).to(outputs.dtype)
        flat, truth = flatten_members(outputs, standardised)  # (B, Q) or (B k, Q), and (B,) or (B k,)
        ordered = self.units.ordered(flat)
        loss = self._loss(flat if stage == "train" else ordered, truth)
        with torch.no_grad():
            # differences in the target's own units; float32 is precise enough for R² without their mean
            values, truth = ordered * self.units.std, truth * self.units.std
            measured = {"preds": self.units.point(values), "target": truth}
            if self.quantiles is not None:
                measured["covered"] = (values[:, 0] <= truth) & (truth <= values[:, -1])
            self.log_step(stage, loss, len(target), **measured)
        return loss, outputs

    def _loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The mean over samples, and over quantiles, of standardised outputs (B, Q) and targets (B,)."""
        if self.quantiles is not None:
            errors = (target[:, None] - outputs).unbind(dim=1)
            pairs = zip(self.quantiles, errors, strict=True)
            return torch.stack([torch.maximum(level * error, (level - 1) * error) for level, error in pairs]).mean()
        value = outputs.squeeze(1)  # (B,)
        if self.loss == "huber":
            return huber_loss(value, target, delta=self.huber_delta)
        return l1_loss(value, target) if self.loss == "l1" else mse_loss(value, target)

    def _standardised(self, inputs: Tensor | dict[str, Tensor]) -> Tensor:
        """The net's outputs (B, Q), with Q = 1 for a number, in float32 or better; (B, k, Q) of members in training."""
        if self.exported is not None:
            values = self.exported(**inputs) if isinstance(inputs, dict) else self.exported(inputs)
            columns = [values] if self.quantiles is None else values[1:]  # (B,) each
            return self.units.standardise(torch.stack(list(columns), dim=1))
        outputs = super().forward(inputs)
        num_outputs = 1 if self.quantiles is None else len(self.quantiles)
        if outputs.ndim == 1:
            outputs = outputs[:, None]  # (B, 1)
        if outputs.shape[-1] != num_outputs or outputs.ndim > (3 if self.training else 2):
            option = "net" if self.quantiles is None else "quantiles"
            raise UserError(
                f"{option}: expected a net with outputs of shape (B, {num_outputs}), it returned "
                f"{tuple(outputs.shape)}; set the net's num_classes to {num_outputs}"
            )
        return precise(outputs)

    def _quantile_names(self) -> list[str]:
        return [f"value_{level}" for level in self.quantiles or ()]

    def _require_numbers(self, target: Tensor) -> None:
        classes = self.facts.get("classes")
        if classes and not target.is_floating_point():
            listed = ", ".join(classes[:5]) + (f" and {len(classes) - 5} more" if len(classes) > 5 else "")
            raise UserError(
                f"targets: expected numbers, got the classes {listed}; set --data.target_kind number, or --model "
                "Classification"
            )

    def _check(self, outputs: Tensor, target: Tensor) -> None:
        members = (len(target), *outputs.shape[1:2]) if outputs.ndim == 3 else None
        if target.shape not in ((len(outputs),), members):
            expected = f"({len(outputs)},)" + (f" or {members}" if members else "")
            raise UserError(f"targets: expected one number for each sample, {expected}, got {tuple(target.shape)}")
        if not target.isfinite().all():  # doctor: ignore[host-sync] only the first batch on an accelerator
            wrong = target[~target.isfinite()][0].item()
            name = f" of {self.facts['target_name']}" if "target_name" in self.facts else ""
            raise UserError(f"targets: expected finite numbers{name}, got {wrong}")


def _check_levels(quantiles: list[float], net: nn.Module) -> None:
    inside = all(0 < level < 1 for level in quantiles)
    if not quantiles or not inside or sorted(set(quantiles)) != list(quantiles):
        raise ValueError(f"quantiles: expected ascending levels in (0, 1), as in [0.1, 0.5, 0.9], got {quantiles}")
    if len(quantiles) > 1 and getattr(net, "average", "values") != "values":
        # an ensemble such as TabM takes several outputs for classes unless it is told
        raise ValueError(f"quantiles: expected --model.net.average values, got {net.average}")


def _training_set(trainer: Any) -> Any:
    data = getattr(trainer, "datamodule", None)
    if data is None:
        return None
    return getattr(data, "train_set", None) or getattr(data.train_dataloader(), "dataset", None)


def _listed_targets(dataset: Any) -> Tensor | None:
    """The finite targets (N,) of a data set that lists them, a TensorDataset, or a Subset of such; None of others."""
    if isinstance(dataset, Subset):
        targets = _listed_targets(dataset.dataset)
        return None if targets is None else targets[torch.as_tensor(dataset.indices)]
    targets = dataset.tensors[-1] if isinstance(dataset, TensorDataset) else getattr(dataset, "targets", None)
    if targets is None:
        return None
    targets = torch.as_tensor(targets).double()
    return targets[targets.isfinite()] if targets.ndim == 1 and targets.isfinite().any() else None


class _Units(nn.Module):
    """Converts the net's outputs (…, Q), with Q = 1 for a number, to the target's own units, (…,) or quantiles (…, Q).

    Mean and deviation stay in float32, whatever the precision of the weights: bfloat16 would leave two or three digits,
    and float16 ends at 65,504.

    Args:
        levels: of the quantiles; None for a number.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, levels: list[float] | None) -> None:
        super().__init__()
        self.levels = levels
        self.register_buffer("mean", torch.zeros((), dtype=torch.float32))
        self.register_buffer("std", torch.ones((), dtype=torch.float32))

    def _apply(self, fn: Any, recurse: bool = True) -> "_Units":
        mean, std = self.mean, self.std
        super()._apply(fn, recurse)
        if self.mean.dtype != mean.dtype:
            self.mean, self.std = mean.to(self.mean.device), std.to(self.std.device)
        return self

    @property
    def are_set(self) -> bool:
        return not (self.mean == 0 and self.std == 1)

    def set(self, mean: float, std: float) -> None:
        self.mean.fill_(mean)
        self.std.fill_(std if 0 < std < math.inf else 1.0)  # 0 for a constant target

    def forward(self, outputs: Tensor) -> Tensor:
        values = precise(self.ordered(outputs)) * self.std + self.mean
        return values.squeeze(-1) if self.levels is None else values

    def ordered(self, outputs: Tensor) -> Tensor:
        return outputs if self.levels is None else outputs.sort(dim=-1).values

    def point(self, values: Tensor) -> Tensor:
        """The prediction (B,) among values (B,), (B, 1) or (B, Q)."""
        levels = self.levels or [0.5]
        nearest = min(range(len(levels)), key=lambda index: abs(levels[index] - 0.5))
        return values if values.ndim == 1 else values[:, nearest]

    def standardise(self, values: Tensor) -> Tensor:
        return (precise(values) - self.mean) / self.std


def _program(net: nn.Module, units: _Units) -> nn.Module:
    """A net with outputs in the target's own units; its inputs keep their names."""

    class Program(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net
            self.units = units

        @wraps(type(net).forward)  # export reads the names of the inputs from the signature
        def forward(self, *values: Tensor, **inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
            outputs = self.net(*values, **inputs)
            predictions = self.units(outputs if outputs.ndim > 1 else outputs[:, None])
            if self.units.levels is None:
                return predictions
            return self.units.point(predictions), *predictions.unbind(dim=1)

    return Program()


class _R2(Metric):
    """The coefficient of determination; of targets that are all the same, 1 where they are met and else 0."""

    count: Tensor
    total: Tensor
    squares: Tensor
    residual: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("count", "total", "squares", "residual"):
            self.add_state(name, torch.zeros(()), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.count = self.count + len(target)
        self.total = self.total + target.sum()
        self.squares = self.squares + target.square().sum()
        self.residual = self.residual + (target - preds).square().sum()

    def compute(self) -> Tensor:
        variation = self.squares - self.total.square() / self.count.clamp(min=1)
        is_constant = variation <= 1e-6 * self.squares  # what rounding leaves of 0
        return torch.where(is_constant, (self.residual == 0).float(), 1 - self.residual / variation)


class _Coverage(MeanMetric):
    """Share of targets from the lowest to the highest quantile."""

    def update(self, covered: Tensor) -> None:
        super().update(covered.float())
