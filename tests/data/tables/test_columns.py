"""Encodings against scikit-learn's, and the facts that nets are built from."""

from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import QuantileTransformer, RobustScaler, StandardScaler

from playbook import TableReader, UserError
from src.data.tables.columns import NOISE, facts_of_columns, fit_columns


def reader_of(columns: list[dict[str, Any]]) -> TableReader:
    return TableReader({"columns": columns, "missing": [""]})


def samples(kind: str) -> np.ndarray:
    generator = np.random.default_rng(1)
    values = {"skewed": generator.exponential(2.0, 5000), "counts": generator.poisson(1.5, 5000).astype(float)}
    return values[kind]


@pytest.mark.parametrize("kind", ["skewed", "counts"])
@pytest.mark.parametrize("size", [40, 5000])
def test_quantiles_are_scikit_learns(kind: str, size: int) -> None:
    values = samples(kind)[:size]
    columns, _ = fit_columns({"x": values}, {"x": "number"}, "quantile", 10)
    noise = NOISE * values.std() * np.random.default_rng(0).standard_normal(size)
    count = {40: 10, 5000: 166}[size]
    reference: Any = QuantileTransformer(n_quantiles=count, output_distribution="normal", subsample=10_000)
    reference.fit((values + noise)[:, None])
    others = np.concatenate([values, [-1e9, 1e9, values.min(), values.max(), 0.0]])
    encoded = reader_of(columns).encode_parsed({"x": others})["numbers"][:, 0]
    np.testing.assert_allclose(encoded, reference.transform(others[:, None])[:, 0], atol=1e-6)


@pytest.mark.parametrize(("scaling", "reference"), [("standard", StandardScaler()), ("robust", RobustScaler())])
def test_linear_scalings_are_scikit_learns(scaling: Any, reference: Any) -> None:
    values = samples("skewed")
    columns, _ = fit_columns({"x": values}, {"x": "number"}, scaling, 10)
    encoded = reader_of(columns).encode_parsed({"x": values})["numbers"][:, 0]
    np.testing.assert_allclose(encoded, reference.fit_transform(values[:, None])[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scaling", ["quantile", "standard", "robust"])
def test_a_constant_column_is_zero(scaling: Any) -> None:
    columns, _ = fit_columns({"x": np.full(50, 3.0)}, {"x": "number"}, scaling, 10)
    assert reader_of(columns).encode_parsed({"x": np.full(2, 3.0)})["numbers"].tolist() == [[0.0], [0.0]]


def test_robust_scaling_of_mostly_equal_values_falls_back_to_the_deviation() -> None:
    values = np.array([0.0] * 90 + [1.0] * 10)
    columns, _ = fit_columns({"x": values}, {"x": "number"}, "robust", 10)
    assert columns[0]["scale"] == pytest.approx(0.3)


def test_missing_numbers_take_the_median_and_are_indicated() -> None:
    values = np.array([1.0, 2.0, 9.0, np.nan])
    columns, _ = fit_columns({"x": values, "z": values[:3]}, {"x": "number", "z": "number"}, "standard", 10)
    assert [(column["fill"], column["indicates"]) for column in columns] == [(2.0, True), (2.0, False)]
    encoded = reader_of(columns).encode_parsed({"x": np.array([np.nan, 2.0]), "z": np.array([np.nan, 2.0])})
    assert encoded["numbers"][0].tolist() == encoded["numbers"][1].tolist()
    assert encoded["categories"].tolist() == [[2], [1]]


def test_rare_categories_share_the_code_of_unseen_ones() -> None:
    values = np.array(["a"] * 5 + ["b"] * 3 + ["c"] * 3 + ["d"], dtype=object)
    columns, rare = fit_columns({"x": values}, {"x": "category"}, "quantile", 2)
    assert columns[0]["codes"] == ["a", "b"]  # of equally frequent ones, the first by name
    assert rare == {"x": 2}


@pytest.mark.parametrize(
    ("dates", "parts"),
    [
        (["2024-01-01", "2024-01-05"], ["time"]),
        (["2024-01-01", "2024-01-20"], ["time", "week"]),
        (["2024-01-01", "2024-05-20"], ["time", "year", "week"]),
        (["2024-01-01T06:00:00", "2024-01-02"], ["time", "day"]),
    ],
)
def test_dates_have_the_cycles_that_vary(dates: list[str], parts: list[str]) -> None:
    values = TableReader.parse(dates, "date", frozenset())
    columns, _ = fit_columns({"d": values}, {"d": "date"}, "quantile", 10)
    assert columns[0]["parts"] == parts
    encoded = reader_of(columns).encode_parsed({"d": values})["numbers"]
    assert encoded.shape == (2, 2 * len(parts) - 1)
    np.testing.assert_allclose(encoded[:, 0], [-1, 1], atol=1e-6)


def test_a_column_without_values_in_training_is_named() -> None:
    with pytest.raises(UserError, match=r"--data.leave_out x: .* no training row has a number in x"):
        fit_columns({"x": np.full(3, np.nan)}, {"x": "number"}, "quantile", 10)


def test_facts_are_named_like_options_of_nets() -> None:
    values = {
        "x": np.array([1.0, 2.0, np.nan]),
        "c": np.array(["a", "b", "a"], dtype=object),
        "d": np.array([0.0, 86_400.0, 30 * 86_400.0]),
    }
    columns, _ = fit_columns(values, {"x": "number", "c": "category", "d": "date"}, "standard", 10)
    reader = reader_of(columns)
    encoded = reader.encode_parsed(values)
    facts = facts_of_columns(reader, encoded)
    assert facts["num_features"] == encoded["numbers"].shape[1] == 4
    assert facts["cardinalities"] == [3, 3]
    assert all(encoded["categories"].max(axis=0) < facts["cardinalities"])
    quantiles = np.array(facts["number_quantiles"])
    expected = [np.quantile(np.unique(values), [0, 0.5, 1]) for values in encoded["numbers"].T]
    np.testing.assert_allclose(quantiles[:, [0, 64, 128]], expected)


def test_a_frequent_value_takes_one_bin_at_most() -> None:
    values = {"gain": np.array([0.0] * 900 + list(range(1, 101)))}
    columns, _ = fit_columns(values, {"gain": "number"}, "standard", 10)
    reader = reader_of(columns)
    quantiles = np.array(facts_of_columns(reader, reader.encode_parsed(values))["number_quantiles"][0])
    assert len(np.unique(quantiles)) == len(quantiles)
    np.testing.assert_allclose(np.diff(quantiles), np.diff(quantiles)[0], rtol=1e-4)
