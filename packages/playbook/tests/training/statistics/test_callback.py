"""Norms, ratios and dead units of tiny nets, against numbers worked out by hand."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from playbook import Trainer, UserError
from playbook.runs.loggers import MetricsCSV
from playbook.testing.command import QUIET
from playbook.testing.line import Line, Points, line, points
from playbook.training.statistics import callback
from playbook.training.statistics.callback import Statistics


def fit(model: LightningModule, run: Path, data: Any = None, every: int = 1, **settings: Any) -> list[dict[str, float]]:
    """The observations of a training."""
    options: dict[str, Any] = {**QUIET, "max_epochs": 1, **settings}
    statistics = Statistics(every_n_steps=every)
    Trainer(**options, run_dir=run, callbacks=[statistics]).fit(model, data or points(), points())
    return rows(run)


def rows(run: Path) -> list[dict[str, float]]:
    return [
        {name: float(text) for name, text in row.items() if text} for row in MetricsCSV(run / "statistics.csv").read()
    ]


def batches(x: list[float], size: int) -> DataLoader:
    """Points of y = 2 x + 1 with these x."""
    inputs = torch.tensor(x)[:, None]
    return DataLoader(TensorDataset(inputs, 2 * inputs + 1), batch_size=size)


# of y = 2 x + 1 at x = 0 and 1 with w = 3, b = 4: errors 3 and 4, loss 25 / 2; gradients mean(2 e x) = 4, mean(2 e) = 7
STEP = {"gradient_norm": math.sqrt(65), "weight_norm": 5.0, "update_ratio": 0.1 * math.sqrt(65) / 5}


def expected(step: int = 0, epoch: int = 0) -> dict[str, float]:
    layer = {f"{name}/net": value for name, value in STEP.items()}
    return {"epoch": epoch, "step": step, **STEP, **layer}


def test_norms_and_ratio_of_a_step(tmp_path: Path) -> None:
    [row] = fit(line(3.0, 4.0), tmp_path / "run", batches([0.0, 1.0], 2))
    assert row == pytest.approx(expected())


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    [row] = fit(line(3.0, 4.0), tmp_path / "run", batches([0.0, 1.0], 1), accumulate_grad_batches=2)
    assert row == pytest.approx(expected())


def test_gradients_are_those_before_clipping(tmp_path: Path) -> None:
    [row] = fit(line(3.0, 4.0), tmp_path / "run", batches([0.0, 1.0], 2), gradient_clip_val=0.5)
    assert row["gradient_norm"] == pytest.approx(math.sqrt(65))
    assert row["update_ratio"] == pytest.approx(0.1 * 0.5 / 5, rel=1e-5)


def test_parts_of_a_batch_that_did_not_fit_are_one_step(tmp_path: Path) -> None:
    class Tight(Line):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            if len(batch[0]) > 1:
                raise torch.OutOfMemoryError("out of memory")
            return super().training_step(batch, batch_idx)

    model = Tight()
    model.load_state_dict(line(3.0, 4.0).state_dict())
    [row] = fit(model, tmp_path / "run", batches([0.0, 1.0], 2))
    assert row == pytest.approx(expected())


def test_frozen_parameters_are_left_out(tmp_path: Path) -> None:
    model = line(3.0, 4.0)
    model.net.bias.requires_grad_(False)
    [row] = fit(model, tmp_path / "run", batches([0.0, 1.0], 2))
    assert (row["gradient_norm"], row["weight_norm"]) == pytest.approx((4.0, 3.0))
    assert row["update_ratio"] == pytest.approx(0.4 / 3)


def test_weights_of_zero_have_no_ratio(tmp_path: Path) -> None:
    [row] = fit(line(0.0, 0.0), tmp_path / "run", batches([0.0, 1.0], 2))
    assert row["weight_norm"] == 0
    assert not [name for name in row if name.startswith("update_ratio")]


@pytest.mark.parametrize("fused", [False, True], ids=["by the precision", "by a fused optimizer"])
def test_gradients_are_unscaled(tmp_path: Path, fused: bool) -> None:
    class Half(Line):
        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=self.lr, fused=fused)

    model = Half()
    model.load_state_dict(line(3.0, 4.0).state_dict())
    from lightning.pytorch.plugins import MixedPrecision

    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=64.0))
    [row] = fit(model, tmp_path / "run", batches([0.0, 1.0], 2), plugins=[plugin])
    assert row == pytest.approx(expected(), rel=1e-3)


class Manual(Line):
    """Two optimizers, the second of which steps twice a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.scale = nn.Parameter(torch.tensor(10.0))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizers: Any = self.optimizers()
        first, second = optimizers
        first.zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        first.step()
        for value in (1.0, 3.0):
            second.zero_grad()
            self.manual_backward(value * self.scale)
            second.step()

    def configure_optimizers(self) -> Any:
        rates = [(self.net.parameters(), 0.1), ([self.scale], 0.5)]
        return [torch.optim.SGD(parameters, lr=lr) for parameters, lr in rates]


def test_manual_optimization_shows_the_last_step_of_each_optimizer(tmp_path: Path) -> None:
    model = Manual()
    model.load_state_dict({**line(3.0, 4.0).state_dict(), "scale": torch.tensor(10.0)})
    first, _ = fit(model, tmp_path / "run", batches([0.0, 1.0] * 2, 2))
    assert {name: first[f"{name}/net"] for name in STEP} == pytest.approx(STEP)
    assert first["gradient_norm/scale"] == pytest.approx(3.0)
    assert first["update_ratio/scale"] == pytest.approx(1.5 / 9.5)
    assert first["gradient_norm"] == pytest.approx(math.sqrt(65 + 9))


def test_lbfgs_is_observed_at_the_gradient_that_it_starts_from(tmp_path: Path) -> None:
    class Newton(Line):
        def configure_optimizers(self) -> Any:
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)

    model = Newton()
    model.load_state_dict(line(3.0, 4.0).state_dict())
    [row] = fit(model, tmp_path / "run", batches([0.0, 1.0], 2))
    after = torch.tensor([model.net.weight.item(), model.net.bias.item()])
    assert row["gradient_norm"] == pytest.approx(math.sqrt(65))
    assert row["update_ratio"] == pytest.approx((after - torch.tensor([3.0, 4.0])).norm().item() / 5, rel=1e-5)


class Dead(Line):
    """Four units, of which as many are dead as biases are negative; -10 + x is never positive."""

    def __init__(self, biases: list[float]) -> None:
        super().__init__()
        first, last = nn.Linear(1, 4), nn.Linear(4, 1)
        nn.init.ones_(first.weight)
        first.bias.data = torch.tensor(biases)
        self.net = nn.Sequential(first, nn.ReLU(), last)


def test_dead_units_and_their_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [row] = fit(Dead([-10.0, -10.0, -10.0, 0.0]), tmp_path / "run", batches([0.0, 1.0], 2))
    assert row["dead_units/net.1"] == 0.75
    assert (
        "warning: Statistics: units that were not positive for any sample of the last observed step: 75% (net.1)"
        in (capsys.readouterr().err)
    )


def test_a_unit_that_one_batch_of_the_step_excites_is_alive(tmp_path: Path) -> None:
    """x is -1 and 1: +x - ½ is positive at the second alone, and no validation between them counts."""
    settings: dict[str, Any] = {"accumulate_grad_batches": 2, "val_check_interval": 1}
    model = Dead([-0.5, -0.5, -0.5, -10.0])
    data = Points()
    data.train_dataloader = lambda: batches([-1.0, 1.0], 1)
    data.val_dataloader = lambda: batches([100.0], 1)
    Trainer(**QUIET, max_epochs=1, run_dir=tmp_path, callbacks=[Statistics(1)], **settings).fit(model, datamodule=data)
    assert rows(tmp_path)[0]["dead_units/net.1"] == 0.25
    assert not model.net[1]._forward_hooks, "hooks stay no longer than the step"


def test_every_nth_step_is_observed_and_a_continued_run_goes_on(tmp_path: Path) -> None:
    steps = [row["step"] for row in fit(line(), tmp_path / "whole", every=3, max_epochs=4)]  # 2 steps an epoch
    assert steps == [0, 3, 6]
    fit(line(), tmp_path / "cut", every=3, max_epochs=3)
    trainer = Trainer(**{**QUIET, "max_epochs": 4}, run_dir=tmp_path / "cut", callbacks=[Statistics(3)])
    trainer.fit(line(), points(), points(), ckpt_path="last")
    assert (tmp_path / "cut/statistics.csv").read_text() == (tmp_path / "whole/statistics.csv").read_text()


def test_other_loggers_get_them_and_metrics_csv_does_not(tmp_path: Path) -> None:
    from lightning.pytorch.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(line(3.0, 4.0), tmp_path / "run", batches([0.0, 1.0], 2), logger=TensorBoardLogger(tmp_path, "", ""))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Scalars("update_ratio/net")[0].value == pytest.approx(STEP["update_ratio"])
    assert "net" not in (tmp_path / "run/metrics.csv").read_text()


def test_fast_and_slow_layers_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = line(3.0, 4.0)
    model.lr = 1e-9
    fit(model, tmp_path / "slow", batches([0.0, 1.0] * 4, 2), max_epochs=2)
    told = capsys.readouterr().err
    assert told.count("warning") == 1
    assert "(net) of their norm, where 1e-3 is usual, in 3 observations in a row" in told

    class Growing(Line):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return -self.net.weight.sum() * self.net.weight.detach().sum()  # w ← 1.5 w

    model = Growing(lr=0.5)
    fit(model, tmp_path / "large", batches([0.0, 1.0] * 4, 2), max_epochs=2)
    assert "lower learning rate" in capsys.readouterr().err


def test_the_end_of_a_schedule_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Scheduled(Line):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1e-5 if step > 1 else 1.0)
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    model = Scheduled(lr=0.03)
    model.load_state_dict(line(3.0, 4.0).state_dict())
    fit(model, tmp_path, batches([0.0, 1.0] * 8, 2))
    assert 0 < rows(tmp_path)[-1]["update_ratio"] < callback.SMALL
    assert capsys.readouterr().err == ""


def test_layers_are_in_the_order_of_the_module(tmp_path: Path) -> None:
    class Grouped(Dead):
        def configure_optimizers(self) -> Any:
            weights = [{"params": [self.net[2].weight, self.net[0].weight]}]
            return torch.optim.SGD([*weights, {"params": [self.net[0].bias]}], lr=0.1)

    [row] = fit(Grouped([1.0] * 4), tmp_path, batches([0.0, 1.0], 2))
    assert [name for name in row if name.startswith("weight_norm/")] == ["weight_norm/net.0", "weight_norm/net.2"]
    assert row["weight_norm/net.0"] == pytest.approx(math.sqrt(8))


def test_a_compiled_net_has_no_dead_units(tmp_path: Path) -> None:
    model = Dead([-10.0] * 4)
    model.net.compile(backend="eager")
    [row] = fit(model, tmp_path, batches([0.0, 1.0], 2))
    assert row["weight_norm/net.0"] == pytest.approx(math.sqrt(404))
    assert not [name for name in row if name.startswith("dead_units")]


def test_an_exception_leaves_no_hook(tmp_path: Path) -> None:
    class Failing(Dead):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            super().training_step(batch, batch_idx)
            raise KeyError("mine")

    model = Failing([0.0] * 4)
    with pytest.raises(KeyError, match="mine"):
        fit(model, tmp_path)
    assert not model.net[1]._forward_hooks


def test_what_is_out_of_range_or_sharded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="every_n_steps: expected at least 1, got 0"):
        Statistics(0)
    from lightning.pytorch.strategies import FSDPStrategy

    class Sharded:
        strategy = FSDPStrategy(accelerator=None)

    with pytest.raises(UserError, match="Statistics does not support sharded weights"):
        Statistics().on_train_start(Sharded(), line())  # type: ignore[arg-type]


def test_many_layers_are_named_in_short() -> None:
    assert (
        callback._list({"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}) == "1.0e-01 (a), 2.0e-01 (b), 3.0e-01 (c) and 1 more"
    )
