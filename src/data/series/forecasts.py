"""The sample of a series that is forecast beyond its last value."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from playbook import UserError
from src.data.series.encoding import Encoding
from src.data.series.gaps import Line, first_gap, require_regular
from src.data.series.observations import Observations
from src.data.series.windows import Inputs, inputs_of
from src.ops.frequencies import later, names_of, step_numbers


def sample_beyond(
    whole: Observations, encoding: Encoding, make_line: Callable[[Observations, np.ndarray], Line]
) -> tuple[Inputs, Inputs]:
    """Makes the inputs of a forecast, from the rows up to the last value of a series and the rows after it.

    Args:
        whole: the series. Rows after its last value hold known covariates, and say how many steps to forecast.
        encoding: of the training.
        make_line: applies the option `gaps` to the rows of the history.

    Returns:
        The inputs without the dimension B, and origin (), scale (2, C) and steps ().

    Raises:
        UserError: the history is too short or has gaps, known covariates of the future are missing, or more steps are
            asked for than the horizon.
    """
    facts, length = encoding.facts, whole.num_observed
    if not length:
        raise UserError(f"{whole.name}: has no value of {', '.join(encoding.columns.target)}")
    steps, is_regular = step_numbers(whole.times, encoding.frequency)
    require_regular(whole, is_regular, encoding.frequency, _stop)
    num_asked = len(steps) - length
    if num_asked and steps[-1] - steps[length - 1] != num_asked:
        raise UserError(f"{whole.places[length]}: expected the rows to forecast directly after the last value")
    if num_asked > facts["horizon"]:
        raise UserError(
            f"{whole.name}: asks for {num_asked:,} steps after {names_of(whole.times[length - 1 : length])[0]}, "
            f"expected at most the {facts['horizon']:,} of the checkpoint; train with --data.horizon {num_asked}"
        )
    line = make_line(whole.cut(0, length), steps[:length])
    scale = encoding.scale_of(whole.name, line.series.target[~line.is_filled])
    past, past_covariates = _look_back(line, encoding, scale)
    known = _known_of_future(line.series, whole.cut(length, len(steps)), encoding)
    parts = [past, past_covariates, known, encoding.static(line.series)]
    inputs = inputs_of(*(torch.from_numpy(part).float() for part in parts))
    origin, count = int(line.series.times[-1]), num_asked or facts["horizon"]
    scales = torch.from_numpy(scale).float()  # (2, C)
    return inputs, {"origin": torch.tensor(origin), "scale": scales, "steps": torch.tensor(count)}


def _look_back(line: Line, encoding: Encoding, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last rows: scaled target (L, C) and covariates (L, P)."""
    series, look_back = line.series, encoding.facts["look_back"]
    if len(line.steps) < look_back:
        raise UserError(
            f"{series.name}: has {len(line.steps):,} rows, expected at least the look_back of {look_back:,}"
        )
    last = series.cut(len(line.steps) - look_back, len(line.steps))
    if gap := first_gap(last, line.steps[-look_back:], encoding.columns):
        raise UserError(f"{gap}, in the look_back of {look_back:,} rows; --data.gaps fill interpolates")
    return encoding.arrays(last, scale)


def _known_of_future(series: Observations, future: Observations, encoding: Encoding) -> np.ndarray:
    """Known covariates (H, F) after the end of a series; those of steps that nobody asks for repeat the last."""
    columns, horizon = encoding.columns.known, encoding.facts["horizon"]
    times = later(series.times[-1:], encoding.frequency, np.arange(1, horizon + 1))
    if columns and not len(future.times):
        raise UserError(
            f"{series.name}: expected rows after the last value, with {', '.join(columns)} of the steps to forecast "
            f"and an empty {', '.join(encoding.columns.target)}"
        )
    rows = np.minimum(np.arange(horizon), len(future.times) - 1)
    _require_known(future, columns)
    return encoding.known({name: future.covariates[name][rows] for name in columns}, times)


def _require_known(future: Observations, columns: Sequence[str]) -> None:
    for name in columns:
        values = future.covariates[name]
        if values.dtype.kind == "f" and len(missing := np.flatnonzero(np.isnan(values))):
            place = f"{future.places[missing[0]]}: {future.name}"
            raise UserError(f"{place}: {name} is missing, expected a number in every row to forecast")


def _stop(place: str, text: str) -> Any:
    raise UserError(text)
