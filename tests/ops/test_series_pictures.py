"""What a picture of a forecast shows: panels, and history, forecast and interval in their places."""

import numpy as np
import pytest
import torch

from src.ops.series_pictures import forecast_picture

TIMES = ["2020-01-01 00:00:00", "2020-01-02 00:00:00", "2020-01-03 00:00:00"]


def picture(
    history: list[float], forecast: list[float], num_channels: int = 1, width: float | None = None
) -> np.ndarray:
    known, values = (torch.tensor(series)[:, None].expand(-1, num_channels) for series in (history, forecast))
    interval = None if width is None else torch.stack([values - width, values + width])
    names = [f"c{c}" for c in range(num_channels)]
    return np.asarray(forecast_picture(known, values, names, TIMES, interval)).astype(int)


def changed_columns(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.flatnonzero((a != b).any(axis=(0, 2)))


@pytest.mark.parametrize(("num_channels", "height"), [(1, 300), (2, 500)])
def test_a_panel_for_each_channel(num_channels: int, height: int) -> None:
    assert len(picture([0, 1], [1, 0, 0], num_channels)) == height


@pytest.mark.slow
def test_at_most_sixteen_panels() -> None:
    assert len(picture([0, 1], [1, 0, 0], 17)) == 3300


def test_the_forecast_is_right_of_the_history() -> None:
    whole = picture([0, 1, 0, 1, 0], [0, 1, 0])
    history = changed_columns(whole, picture([0, 1, 1, 1, 0], [0, 1, 0]))
    forecast = changed_columns(whole, picture([0, 1, 0, 1, 0], [0, 0, 0]))
    assert history.max() < forecast.min(), "the changed step of the history is left of that of the forecast"


def test_an_interval_is_an_area() -> None:
    tinted = [(np.ptp(picture([0], [0, 1, 0], width=width), axis=2) > 20).sum() for width in (None, 0.5)]
    assert tinted[1] > tinted[0] + 5_000, tinted


def test_the_target_is_drawn_over_the_forecast_alone() -> None:
    history, forecast, target = torch.zeros(5, 1), torch.zeros(3, 1), torch.tensor([[0.0], [1.0], [0.5]])
    pictures = [
        np.asarray(forecast_picture(history, forecast, ["y"], TIMES, target=line)).astype(int)
        for line in (target, target * torch.tensor([[1.0], [1.0], [0.0]]))
    ]
    changed = changed_columns(*pictures)
    assert changed.min() > pictures[0].shape[1] * 0.6, "from the second step of the forecast on"
