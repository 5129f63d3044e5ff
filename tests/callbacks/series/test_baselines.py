"""Baselines of forecasts, logged beside a net's."""

from typing import Any

import pytest

from playbook import Trainer, UserError, build
from src.callbacks.series.baselines import Baselines
from src.data.series.air_passengers import AirPassengers
from src.nets.series.linear import DLinear
from src.ops.forecast_baselines import baseline_scores
from src.tasks.forecasting import Forecasting


def measured(callback: Baselines, **options: Any) -> dict[str, float]:
    data = AirPassengers(**options)
    task = build(Forecasting, data, net=DLinear)
    trainer = Trainer(run_dir=False, accelerator="cpu", callbacks=[callback], enable_progress_bar=False)
    return dict(trainer.test(task, datamodule=data, verbose=False)[0])


def test_they_are_measured_on_all_test_windows() -> None:
    data = AirPassengers()
    data.setup("fit")
    batches = {
        name: [windows.__getitems__(range(len(windows)))]  # type: ignore[attr-defined]
        for name, windows in (("train", data.train_set), ("test", data.test_set))
    }
    expected = baseline_scores(batches["train"], batches["test"], period=12)
    results = measured(Baselines())
    for name, own in expected.items():
        for metric, value in own.items():
            assert results[f"{name}/{metric}"] == pytest.approx(value, rel=1e-5)
    assert expected["least_squares"]["mse"] < expected["seasonal_naive"]["mse"]


def test_a_season_beyond_the_look_back() -> None:
    with pytest.raises(UserError, match="Baselines: period: expected at most the look-back of 6 steps, got 12"):
        measured(Baselines(), look_back=6)
    assert "seasonal_naive/mse" in measured(Baselines(period=6), look_back=6)


def test_a_period_below_1() -> None:
    with pytest.raises(ValueError, match="period: expected at least 1 step, got 0"):
        Baselines(period=0)
