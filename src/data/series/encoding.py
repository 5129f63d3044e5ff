"""How a series becomes inputs of a net, by the facts of the training data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from playbook import UserError
from src.data.series.columns import Columns
from src.data.series.covariates import encode, mean_and_std
from src.data.series.observations import Observations
from src.ops.frequencies import Frequency, calendar_features, parse_frequency


class Encoding:
    """Scales a series and encodes its covariates.

    Args:
        facts: of Series.

    Raises:
        UserError: they are those of other data.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        if "reading" not in facts:
            raise UserError("--ckpt_path: the checkpoint has no columns; expected one that was trained on Series")
        self.facts = facts
        self.reading: dict[str, Any] = facts["reading"]
        self.columns = Columns(**self.reading["columns"])

    @property
    def needed(self) -> list[str]:
        """Names of all columns."""
        columns = self.columns
        series = [columns.series] if columns.series else []
        return [columns.time, *series, *columns.target, *columns.past, *columns.known, *columns.static]

    @property
    def numeric(self) -> dict[str, bool]:
        """Whether each covariate is a number; otherwise it is a category."""
        return {column: "categories" not in own for column, own in self.reading["covariates"].items()}

    @property
    def frequency(self) -> Frequency:
        return parse_frequency(self.facts["frequency"])

    def own_scale(self, target: np.ndarray) -> np.ndarray:
        """Mean and standard deviation (2, C) of some rows (T, C)."""
        if self.reading["scaling"] == "none":
            return np.array([[0.0], [1.0]]).repeat(target.shape[1], axis=1)  # (2, C)
        return np.stack(mean_and_std(target))

    def scale_of(self, name: str, target: np.ndarray) -> np.ndarray:
        """Mean and standard deviation (2, C) of a series.

        Args:
            name: of the series.
            target: rows (T, C) that tell them if training did not have this series.
        """
        if self.columns.series is None:
            return np.array([self.facts["target_mean"], self.facts["target_std"]])
        known = self.facts["series_scales"].get(name)
        return self.own_scale(target) if known is None else np.array(known)

    def arrays(self, series: Observations, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scaled target (T, C), and covariates (T, P), the known ones first."""
        past = encode(self.columns.past, series.covariates, self.reading["covariates"], len(series.times))
        known = self.known({name: series.covariates[name] for name in self.columns.known}, series.times)
        return (series.target - scale[0]) / scale[1], np.concatenate([known, past], axis=1)

    def known(self, values: Mapping[str, np.ndarray], times: np.ndarray) -> np.ndarray:
        """Known covariates (T, F), the calendar last."""
        known = encode(self.columns.known, values, self.reading["covariates"], len(times))
        if not self.reading["calendar"]:
            return known
        return np.concatenate([known, calendar_features(times, self.frequency)], axis=1)

    def static(self, series: Observations) -> np.ndarray:
        """Static covariates (S,).

        Raises:
            UserError: one of them changes, or a number is missing.
        """
        for name in self.columns.static:
            values = series.covariates[name]
            missing = np.flatnonzero(np.isnan(values)) if values.dtype.kind == "f" else np.array([], dtype=int)
            if len(missing):
                raise UserError(f"{series.places[missing[0]]}: {series.name}: {name} is missing, expected a number")
            if len(others := np.flatnonzero(values != values[0])):
                row = int(others[0])
                raise UserError(
                    f"{series.places[row]}: {series.name}: {name} changes from {values[0]} to {values[row]}, "
                    "expected one value a series; --data.past_covariates takes columns that change"
                )
        first = {name: series.covariates[name][:1] for name in self.columns.static}
        return encode(self.columns.static, first, self.reading["covariates"], 1)[0]

    def unseen(self, series: Observations) -> list[str]:
        """Categories that training did not have, as `holiday Easter`."""
        return [
            f"{name} {value or '(empty)'}"
            for name, own in self.reading["covariates"].items()
            for value in sorted(set(series.covariates[name].tolist()) - set(own.get("categories", ())))
            if "categories" in own
        ]
