"""Forecasting: the next H steps of series."""

from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import l1_loss, mse_loss
from torchmetrics import MeanAbsoluteError, MeanMetric, MeanSquaredError, Metric, MetricCollection

from playbook import OptimizerFactory, ScheduleFactory, Task, TestReport, UserError
from src.ops.frequencies import future_steps
from src.ops.losses import precise
from src.ops.result_charts import curves, quantile_rows
from src.ops.series_pictures import forecast_picture

LOSSES = ("mse", "l1", "quantile")
QUANTILES = (0.1, 0.5, 0.9)
Batch = tuple[Tensor | dict[str, Tensor], Any]


class Forecasting(Task):
    """Forecasts (B, H, C) of the next H steps of C channels, measured by mse and mae over all windows and values.

    Targets are scaled by the data, and so are loss and metrics, as in papers; forecasts and answers are in the series'
    own units. With quantiles, the forecast is the quantile nearest to 0.5, and `coverage` is the share of targets
    between the lowest and the highest quantile.

    Args:
        net: maps the inputs to (B, H, C), or to (B, H, C, Q) for Q quantiles.
        loss: mse, mean squared error; l1, mean absolute error; quantile, the pinball loss (Koenker & Bassett 1978),
            averaged over quantiles.
        quantiles: ascending levels in (0, 1), for the quantile loss alone. Default to 0.1, 0.5 and 0.9; the net's
            num_quantiles is their number. Where quantiles cross, they are sorted (Chernozhukov et al. 2010), except in
            the loss.
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3 and
            weight_decay=0.01.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name; the last matching rule applies. Each has a `pattern` such as
            net.head.*, and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in
            [{pattern: net.head.*, lr_factor: 10}].

    Raises:
        ValueError: a value is out of range, or the net's outputs do not have the shape of targets and quantiles.
    """

    monitor, monitor_mode = "val/mse", "min"
    program_outputs = ("forecast",)

    def __init__(
        self,
        net: nn.Module,
        loss: Literal["mse", "l1", "quantile"] = "mse",
        quantiles: list[float] | None = None,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        parameter_groups: list[dict[str, Any]] | None = None,
    ) -> None:
        if loss not in LOSSES:
            raise ValueError(f"loss: expected one of {', '.join(LOSSES)}, got {loss}")
        if quantiles is not None and loss != "quantile":
            raise ValueError(f"quantiles: expected loss quantile, got loss {loss}")
        levels = list(QUANTILES) if quantiles is None else quantiles
        if not levels or sorted(set(levels)) != levels or not 0 < levels[0] <= levels[-1] < 1:
            raise ValueError(f"quantiles: expected ascending levels in (0, 1), got {levels}")
        metrics: dict[str, Metric | MetricCollection] = {"mse": MeanSquaredError(), "mae": MeanAbsoluteError()}
        if loss == "quantile":
            metrics["coverage"] = _Coverage()
        super().__init__(net, optimizer, schedule, MetricCollection(metrics), parameter_groups)
        self.loss = loss
        self.loss_name = loss
        self.quantiles = levels if loss == "quantile" else []
        if self.quantiles:
            self.program_outputs = ("quantiles",)  # (B, H, C, Q)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss, _ = self._step("train", batch)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns means over the values of each window: `mse` and `mae` (B,), of steps (B, H) and channels (B, C).

        With quantiles, also `coverage` (B,), and `below` (B, Q), the share of targets that are at most each quantile.
        """
        _, ordered = self._step("test", batch)
        target = precise(batch[1])  # (B, H, C)
        error = self._point(ordered) - target
        outputs = {}
        for name, size in {"mse": error.square(), "mae": error.abs()}.items():
            outputs |= {name: size.mean(dim=(1, 2)), f"{name}_steps": size.mean(2), f"{name}_channels": size.mean(1)}
        if self.quantiles:
            is_below = target.unsqueeze(-1) <= ordered  # (B, H, C, Q)
            covered = (ordered[..., 0] <= target) & is_below[..., -1]
            outputs |= {"coverage": covered.float().mean(dim=(1, 2)), "below": is_below.float().mean(dim=(1, 2))}
        return outputs

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns in own units: `forecast` (B, H, C), and for the quantile loss `quantiles` (B, H, C, Q), ascending.

        `target` (B, H, C) as well, if the batch has one. The facts `target_mean` and `target_std` define the units. In
        place of the values, the target may be a dict: its `scale` (B, 2, C), mean and deviation, then defines the
        units, and the other entries are returned, such as `origin` (B,).
        """
        inputs, target = batch
        values = self._ordered(self._values(inputs)).cpu().double()  # (B, H, C, Q); units may exceed float32
        if isinstance(target, dict):
            outputs = {name: value for name, value in target.items() if name != "scale"}
            mean, deviation = target["scale"].to(values).unsqueeze(2).unbind(1)  # (B, 1, C) each
        else:
            outputs = {"target": target} if target.ndim == 3 else {}  # -1 where it is unknown
            mean, deviation = self._scale(values)  # (C,) each
        if "target" in outputs:
            outputs["target"] = _rounded(outputs["target"].to(values) * deviation + mean, deviation)
        deviation = deviation.unsqueeze(-1)
        values = _rounded(values * deviation + mean.unsqueeze(-1), deviation)
        outputs["forecast"] = self._point(values)
        if self.quantiles:
            outputs["quantiles"] = values
        return outputs

    def answer(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> list[dict[str, Any]]:
        """The steps of each forecast, `forecast`: a dict per step with its time `ds` and the value of each channel.

        Without `origin`, the number `step` is in the place of `ds`. A quantile has its level in its name, as in OT_0.1;
        a known target is called OT_target.

        Args:
            outputs: returned by predict_step; `steps` (B,), if it is there, is how many steps of a window are named.
            facts: with `frequency` and the names of `channels`.
        """
        num_windows, horizon, num_channels = outputs["forecast"].shape
        columns: dict[str, Tensor] = {}  # (B, H) each
        for c, name in enumerate(_channels(facts, num_channels)):
            columns[name] = outputs["forecast"][:, :, c]
            if "quantiles" in outputs:
                for level, values in zip(self.quantiles, outputs["quantiles"][:, :, c].unbind(-1), strict=True):
                    columns[f"{name}_{level:g}"] = values
            if "target" in outputs:
                columns[f"{name}_target"] = outputs["target"][:, :, c]
        lists = {name: column.tolist() for name, column in columns.items()}
        answers = []
        for i in range(num_windows):
            count = int(outputs["steps"][i]) if "steps" in outputs else horizon
            times: list[dict[str, Any]] = [{"step": step + 1} for step in range(count)]
            if "origin" in outputs:
                origin, zone = int(outputs["origin"][i]), facts.get("time_zone", "")
                times = [{"ds": ds} for ds in future_steps(origin, facts["frequency"], count, zone)]
            rows = [time | {name: values[i][h] for name, values in lists.items()} for h, time in enumerate(times)]
            answers.append({"forecast": rows})
        return answers

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        """How errors grow with the horizon, how channels differ, and which windows have the largest errors.

        Args:
            outputs: of test_step, for all test samples.
            facts: with the names of `channels` and their `target_std`, if they are known.
        """
        steps = {name: outputs[f"{name}_steps"].double().mean(dim=0) for name in ("mse", "mae")}  # (H,)
        mse, mae = (outputs[f"{name}_channels"].double().mean(dim=0) for name in ("mse", "mae"))  # (C,)
        rows: list[dict[str, Any]] = [
            {"channel": name, "mse": mse[c].item(), "mae": mae[c].item()}
            for c, name in enumerate(_channels(facts, len(mse)))
        ]
        if len(deviations := facts.get("target_std", [])) == len(rows):
            for row, deviation in zip(rows, deviations, strict=True):
                row["mae in own units"] = row["mae"] * deviation
        first, last = steps["mse"][0].item(), steps["mse"][-1].item()
        alt = (
            f"The mean squared error is {first:.4g} at the first of {len(steps['mse']):,} steps, {last:.4g} at the last"
        )
        names = ["mse", "mae", *(["coverage"] if self.quantiles else [])]
        report = TestReport(
            samples={name: outputs[name] for name in names},
            rankings={"Largest errors": outputs["mse"]},
            tables={"Errors by channel": rows},
            figures={"Error by step of the horizon": (curves(steps, "step", "error"), alt)},
        )
        if self.quantiles:
            report.tables["Quantiles"] = quantile_rows(self.quantiles, outputs["below"])
        return report

    def draw(self, inputs: dict[str, Tensor], answer: dict[str, Any]) -> Image.Image:
        """Draws the history, the forecast, the interval between the outer quantiles, and targets that are known.

        Args:
            inputs: of the net, with `past` (L, C), and with its `scale` (2, C) if the facts have none.
            answer: returned by `answer`.
        """
        past = precise(inputs["past"])
        mean, deviation = inputs["scale"].to(past) if "scale" in inputs else self._scale(past)  # (C,) each
        history = past * deviation + mean
        channels = _channels(self.facts, history.shape[1])
        rows = answer["forecast"]

        def series(suffix: str) -> Tensor:
            return torch.tensor([[row[f"{name}{suffix}"] for name in channels] for row in rows])  # (H, C)

        interval = None
        if len(self.quantiles) > 1:
            interval = torch.stack([series(f"_{level:g}") for level in (self.quantiles[0], self.quantiles[-1])])
        times = [str(row.get("ds", row.get("step"))) for row in rows]
        target = series("_target") if f"{channels[0]}_target" in rows[0] else None
        return forecast_picture(history, series(""), channels, times, interval, target)

    def _step(self, stage: str, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean loss, and the outputs (B, H, C, Q), ascending."""
        inputs, target = batch
        values, target = self._values(inputs), precise(target)  # (B, H, C, Q), (B, H, C)
        if values.shape[:3] != target.shape:
            raise UserError(
                f"horizon, num_channels: expected forecasts {tuple(target.shape)}, as the targets of the data, the net "
                f"returned {tuple(values.shape[:3])}"
            )
        if self.loss == "quantile":
            loss = pinball_loss(values, target, values.new_tensor(self.quantiles))
        else:
            loss = (mse_loss if self.loss == "mse" else l1_loss)(values[..., 0], target)
        ordered = self._ordered(values.detach())
        measured = {"preds": self._point(ordered).flatten(), "target": target.flatten()}
        if self.quantiles:
            measured |= {"low": ordered[..., 0].flatten(), "high": ordered[..., -1].flatten()}
        self.log_step(stage, loss, len(target), **measured)
        return loss, ordered

    def _values(self, inputs: Tensor | dict[str, Tensor]) -> Tensor:
        """The net's outputs (B, H, C, Q), with Q = 1 without quantiles."""
        values = precise(self(inputs))
        num_quantiles = max(1, len(self.quantiles))
        if values.ndim == 3 and num_quantiles == 1:
            return values.unsqueeze(-1)
        if values.ndim != 4 or values.shape[-1] != num_quantiles:
            reason = f"for {num_quantiles} quantiles" if self.quantiles else f"for loss {self.loss}"
            raise UserError(f"num_quantiles: expected {num_quantiles} {reason}, the net returned {tuple(values.shape)}")
        return values

    def _ordered(self, values: Tensor) -> Tensor:
        return values.sort(dim=-1).values if len(self.quantiles) > 1 else values

    def _point(self, ordered: Tensor) -> Tensor:
        """The quantile nearest to 0.5, (B, H, C), or the only value."""
        nearest = min(range(len(self.quantiles)), key=lambda q: abs(self.quantiles[q] - 0.5), default=0)
        return ordered[..., nearest]

    def _scale(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the data's channels, (C,); 0 and 1 if the facts have none."""
        mean, deviation = self.facts.get("target_mean", [0.0]), self.facts.get("target_std", [1.0])
        return values.new_tensor(mean), values.new_tensor(deviation)


def _rounded(values: Tensor, deviation: Tensor) -> Tensor:
    """Values without the digits that float32 does not have: to a hundred thousandth of their deviation."""
    factor = 10 ** (5 - deviation.double().log10().floor())
    return (values * factor).round() / factor


def pinball_loss(values: Tensor, target: Tensor, levels: Tensor) -> Tensor:
    """The mean of max(q e, (q - 1) e) over all values and levels q, where e is target minus value.

    Args:
        values: (…, Q).
        target: (…).
        levels: (Q,) in (0, 1).
    """
    error = target.unsqueeze(-1) - values  # (…, Q)
    return torch.maximum(levels * error, (levels - 1) * error).mean()


class _Coverage(MeanMetric):
    """The share of targets between the lowest and the highest quantile, both included."""

    def update(self, low: Tensor, high: Tensor, target: Tensor) -> None:
        super().update(((low <= target) & (target <= high)).float())


def _channels(facts: dict[str, Any], num_channels: int) -> list[str]:
    names = facts.get("channels") or []
    if len(names) == num_channels:
        return names
    return ["y"] if num_channels == 1 else [f"y{c}" for c in range(num_channels)]
