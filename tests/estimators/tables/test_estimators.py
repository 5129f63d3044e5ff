"""Nets for tables in the manner of scikit-learn."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score

from playbook import UserError
from src.estimators.tables import TableClassifier, TableRegressor
from src.nets.tables.tabular_mlp import TabularMLP

NET = partial(TabularMLP, width=32, depth=1, num_bins=8)


def frame(num_rows: int = 160) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    kind = draw.integers(3, size=num_rows)
    return pd.DataFrame(
        {
            "size": np.where(draw.random(num_rows) < 0.1, np.nan, kind + draw.normal(0, 0.2, num_rows)),
            "colour": pd.Categorical(np.array(["red", "green", "blue"])[(kind + draw.integers(2, size=num_rows)) % 3]),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(300, size=num_rows), unit="D"),
            "price": 100.0 + 50 * kind + draw.normal(0, 5, num_rows),
            "kind": np.array(["b", "c", "a"])[kind],
        }
    )


def trained(**options: Any) -> TableClassifier:
    columns = frame()
    estimator = TableClassifier(NET, max_epochs=20, lr=1e-2, batch_size=32, verbose=False, **options)
    return estimator.fit(columns.drop(columns="kind"), columns["kind"])


@pytest.mark.slow
def test_a_classifier() -> None:
    columns, estimator = frame(), trained()
    probability = estimator.predict_proba(columns)
    assert estimator.classes_.tolist() == ["a", "b", "c"]
    assert estimator.feature_names_in_.tolist() == ["size", "colour", "seen", "price"]
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    assert (estimator.predict(columns) == estimator.classes_[probability.argmax(axis=1)]).all()
    assert estimator.score(columns, columns["kind"]) > 0.95
    again: Any = clone(estimator)
    again.fit(columns.drop(columns="kind"), columns["kind"])
    np.testing.assert_array_equal(again.predict_proba(columns), probability)
    reordered = columns[["price", "seen", "kind", "colour", "size"]]
    np.testing.assert_array_equal(estimator.predict_proba(reordered), probability)
    single = np.concatenate([estimator.predict_proba(columns.iloc[[row]]) for row in range(5)])
    np.testing.assert_allclose(single, probability[:5], atol=1e-6)


@pytest.mark.slow
def test_the_target_may_be_a_column() -> None:
    columns = frame().drop(columns="price")
    by_name = TableClassifier(NET, max_epochs=2, verbose=False).fit(columns, "kind")
    by_values = TableClassifier(NET, max_epochs=2, verbose=False).fit(columns.drop(columns="kind"), columns["kind"])
    np.testing.assert_array_equal(by_name.predict_proba(columns), by_values.predict_proba(columns))


@pytest.mark.slow
def test_a_regressor_predicts_in_the_unit_of_the_target() -> None:
    columns = frame()
    estimator = TableRegressor(NET, max_epochs=30, lr=1e-2, batch_size=32, verbose=False)
    estimator.fit(columns.drop(columns="price").to_dict("list"), columns["price"])
    assert estimator.score(columns, columns["price"]) > 0.9


@pytest.mark.slow
def test_cross_validation_of_an_array_of_integer_labels() -> None:
    rows, target = load_wine(return_X_y=True)
    estimator = TableClassifier(NET, max_epochs=20, lr=1e-2, batch_size=32, verbose=False)
    assert cross_val_score(estimator, rows, target + 5, cv=3).mean() > 0.85


def test_frames_of_polars() -> None:
    columns = frame()
    estimator = TableClassifier(NET, max_epochs=1, verbose=False).fit(columns, "kind")
    other = polars.from_pandas(columns)
    np.testing.assert_array_equal(estimator.predict_proba(other), estimator.predict_proba(columns))


def test_the_best_epoch_is_kept() -> None:
    estimator = trained(patience=3)
    data: Any = estimator.data_
    task: Any = estimator.task_
    predicted = task({name: values for name, values in data.val_set.inputs.items()}).argmax(dim=1)
    accuracy = (predicted == data.val_set.targets).float().mean().item()
    assert accuracy == pytest.approx(task.trainer.early_stopping_callback.best_score.item())


@pytest.mark.parametrize(
    ("rows", "target", "message"),
    [
        ({"a": [1, 2, 3]}, [1, 2], "y: expected a target for each of 3 rows, got 2"),
        ({"a": [1, 2, 3]}, ["x", None, "y"], "y: row 1: expected a label, got none"),
        (np.zeros(3), [1, 2, 3], r"X: expected rows and columns, got an array of shape \(3,\)"),
    ],
)
def test_mistakes(rows: Any, target: list[Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TableClassifier(verbose=False).fit(rows, target)


def test_a_column_that_is_missing_later() -> None:
    estimator = TableClassifier(NET, max_epochs=1, verbose=False).fit(frame(), "kind")
    with pytest.raises(UserError, match="X: expected a column colour"):
        estimator.predict(frame().rename(columns={"colour": "color"}))
