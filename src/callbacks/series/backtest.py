"""Errors of every test window of series."""

import csv
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from torch import Tensor

from playbook import UserError


class Backtest(Callback):
    """Forecasts from every origin of the test rows, and writes the errors to `backtest.csv` in the run directory.

    A row is a forecast from one origin, the last known time of a series: series, origin, `mse` and `mae` of the scaled
    values, as in the metrics, and those of each channel in its own unit, such as OT_mae. A line says the mse at the
    first, the middle and the last step of the horizon, and where it is largest.

    Raises:
        UserError: the data has no windows of series, or the task does not forecast.
    """

    def __init__(self) -> None:
        self.batch_size = 256  # windows at once

    def on_test_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        data: Any = trainer.datamodule
        windows = getattr(data, "predict_set", None)
        if windows is None or "frequency" not in getattr(data, "facts", {}):
            raise UserError(f"Backtest: expected windows of series, such as those of Series, got {type(data).__name__}")
        if not trainer.is_global_zero:
            return
        with trainer.precision_plugin.test_step_context():
            parts = [_errors(pl_module, batch) for batch in windows.batches(self.batch_size)]
        columns, by_step = (torch.cat(part) for part in zip(*parts, strict=True))  # (N, 2 + 2 C), (N, H)
        names = ["mse", "mae", *(f"{channel}_{name}" for channel in data.facts["channels"] for name in ("mse", "mae"))]
        places = [(series, origin) for series, _, origin in (name.rpartition("@") for name in data.ids(windows))]
        folder = trainer.run.path if getattr(trainer, "run", None) else Path(trainer.default_root_dir)
        folder.mkdir(parents=True, exist_ok=True)  # of a run that only tests
        with (folder / "backtest.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["series", "origin", *names])
            for place, row in zip(places, columns.tolist(), strict=True):
                writer.writerow([*place, *(f"{value:.6g}" for value in row)])
        print(_summary(places, columns[:, 0], by_step.mean(dim=0)), flush=True)
        print(f"backtest  {(folder / 'backtest.csv').as_posix()}", flush=True)


def _errors(pl_module: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """Errors of some windows: mse and mae, scaled and of each channel (B, 2 + 2 C), and the scaled mse by step (B, H).

    Args:
        pl_module: the task.
        batch: inputs, and target with `target` and `scale`.
    """
    outputs = pl_module.predict_step(pl_module.transfer_batch_to_device(batch, pl_module.device, 0), 0)
    if not isinstance(outputs, dict) or not {"forecast", "target"} <= outputs.keys():
        raise UserError("Backtest: needs a task whose predict_step returns forecast and target, as Forecasting's does")
    own = (outputs["forecast"] - outputs["target"]).cpu().double()  # (B, H, C)
    scaled = own / batch[1]["scale"][:, 1:].double()
    by_channel = torch.stack([own.square().mean(dim=1), own.abs().mean(dim=1)], dim=2).flatten(1)  # (B, 2 C)
    total = torch.stack([scaled.square().mean(dim=(1, 2)), scaled.abs().mean(dim=(1, 2))], dim=1)  # (B, 2)
    return torch.cat([total, by_channel], dim=1), scaled.square().mean(dim=2)


def _summary(places: list[tuple[str, str]], errors: Tensor, by_step: Tensor) -> str:
    """A line about the mse (N,) of windows, and that of each step (H,).

    Args:
        places: series and origin of each window.
        errors: of the windows.
        by_step: of the steps.
    """
    steps = sorted({0, (len(by_step) - 1) // 2, len(by_step) - 1})
    text = "backtest  mse " + ", ".join(f"{by_step[step]:.4g} at step {step + 1}" for step in steps)
    names = sorted({series for series, _ in places})
    if len(names) > 1:
        means = {name: errors[[series == name for series, _ in places]].mean().item() for name in names}
        worst_name = max(names, key=means.__getitem__)
        text += f"; worst series {worst_name}, {means[worst_name]:.4g}"
    worst = int(errors.argmax())
    series, origin = places[worst]
    return f"{text}; worst origin {origin}{f' of {series}' if len(names) > 1 else ''}, {errors[worst]:.4g}"
