"""What Series learns from a table: columns, sizes of windows, and scales of the training rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from playbook import UserError
from src.data.series.columns import Row, find_columns, is_missing, is_numeric
from src.data.series.covariates import learn_statistics, width_of
from src.data.series.encoding import Encoding
from src.data.series.observations import Observations
from src.data.series.splits import Splits
from src.ops.frequencies import Frequency, calendar_names, complete, infer_frequency, parse_frequency

LOOK_BACK, HORIZON = 96, 24  # where the series are long enough


def learn_columns(
    rows: Sequence[Row], options: Mapping[str, Any], calendar: bool, scaling: str, tell: Callable[[str], Any]
) -> dict[str, Any]:
    """The fact `reading`: how rows become series.

    Args:
        rows: the table.
        options: time, target, series and the lists of covariates.
        calendar: whether the calendar is a covariate.
        scaling: `standard` or `none`.
        tell: called with a sentence about columns that are left out.

    Raises:
        UserError: the table lacks a column, or a covariate has no value.
    """
    columns = find_columns(rows, options, tell)
    covariates: dict[str, dict[str, Any]] = {}
    for name in [*columns.past, *columns.known, *columns.static]:
        values = [row.values.get(name) for row in rows]
        if all(map(is_missing, values)):
            raise UserError(f"--data: every value of the covariate {name} is missing")
        covariates[name] = {} if is_numeric(values) else {"categories": []}
    return {"columns": columns._asdict(), "covariates": covariates, "calendar": calendar, "scaling": scaling}


def learn_frequency(series: Sequence[Observations], frequency: str | None) -> Frequency:
    """The step of the option, or the most common one.

    Raises:
        UserError: no series has two rows.
    """
    times = [own.times for own in series]
    if frequency is not None:
        return complete(parse_frequency(frequency), np.concatenate(times))
    inferred = infer_frequency(times)
    if inferred is None:
        raise UserError(f"--data.root: expected a series of at least 2 rows, got {len(series)} series of 1 row")
    return inferred


def learn_sizes(
    facts: Mapping[str, Any], look_back: int | None, horizon: int | None, splits: Splits, num_rows: int
) -> dict[str, int]:
    """The facts `look_back` and `horizon`: those of the checkpoint, the options, or what suits series of some length.

    Args:
        facts: of the checkpoint, if there is one.
        look_back: the option.
        horizon: the option.
        splits: how series are divided.
        num_rows: length of a usual series.

    Raises:
        UserError: an option differs from the checkpoint.
    """
    for option, value in {"look_back": look_back, "horizon": horizon}.items():
        if value is not None and facts.get(option, value) != value:
            raise UserError(f"--data.{option}: expected {facts[option]}, as in the checkpoint, got {value}")
    num_future: int = facts.get("horizon") or horizon or min(HORIZON, max(1, num_rows // 6))
    num_train = splits.borders(num_rows, num_future)[0]
    num_past: int = facts.get("look_back") or look_back or min(LOOK_BACK, max(1, (num_train - num_future) // 2))
    return {"look_back": num_past, "horizon": num_future}


def learn_scales(encoding: Encoding, parts: Mapping[str, Observations]) -> dict[str, Any]:
    """The facts `target_mean` and `target_std`, in a long table `series_scales`, and `reading` with its statistics.

    Args:
        encoding: of the facts without them.
        parts: training rows of each series, without interpolated ones.

    Raises:
        UserError: a covariate has too many categories.
    """
    columns, covariates = encoding.columns, dict(encoding.reading["covariates"])
    scales = {name: encoding.own_scale(part.target) for name, part in parts.items()}
    identity = np.array([[0.0], [1.0]]).repeat(len(columns.target), axis=1)  # (2, C)
    mean, std = next(iter(scales.values())) if len(scales) == 1 else identity
    for name in covariates:
        rows = slice(1) if name in columns.static else slice(None)
        values = np.concatenate([part.covariates[name][rows] for part in parts.values()])
        covariates[name] = learn_statistics(name, values)
    facts: dict[str, Any] = {"target_mean": mean.tolist(), "target_std": std.tolist()}
    if columns.series is not None:
        facts["series_scales"] = {name: scale.tolist() for name, scale in scales.items()}
    return facts | {"reading": encoding.reading | {"covariates": covariates}}


def count_inputs(encoding: Encoding) -> dict[str, Any]:
    """The facts that fill in the sizes of nets."""
    columns, covariates = encoding.columns, encoding.reading["covariates"]
    calendar = calendar_names(encoding.frequency) if encoding.reading["calendar"] else []
    num_known = len(calendar) + sum(width_of(covariates[name]) for name in columns.known)
    return {
        "channels": columns.target,
        "num_channels": len(columns.target),
        "num_known_covariates": num_known,
        "num_past_covariates": num_known + sum(width_of(covariates[name]) for name in columns.past),
        "num_static": sum(width_of(covariates[name]) for name in columns.static),
    }
