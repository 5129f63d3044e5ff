"""Charts by the data of their artists, and tables against scikit-learn and NumPy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics
from sklearn.calibration import calibration_curve
from torch import Tensor

from src.ops.result_charts import (
    MOST_POINTS,
    class_rows,
    confusion_matrix,
    curves,
    error_rows,
    histogram,
    loss_report,
    precision_over_recall,
    precision_recall,
    quantile_rows,
    reliability,
    scatter,
    score_rows,
    spread_rows,
)

K = 3
NAMES = ["cat", "dog", "owl"]


def classified(num_samples: int = 200) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities (N, K), their most likely classes and targets (N,), which they tell most of the time."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(K, (num_samples,), generator=generator)
    logits = torch.randn(num_samples, K, generator=generator)
    logits[torch.arange(num_samples), target] += 1
    probability = logits.softmax(dim=1)
    return probability, probability.argmax(dim=1), target


def only_axes(figure: Any) -> Any:
    [axes] = figure.axes
    return axes


def test_the_confusion_matrix_has_the_counts_of_each_pair() -> None:
    _, label, target = classified()
    axes = only_axes(confusion_matrix(label, target, NAMES))
    found = np.zeros((K, K), dtype=int)
    for text in axes.texts:
        column, row = text.get_position()
        found[row, column] = int(text.get_text())
    assert (found == metrics.confusion_matrix(target, label)).all()
    assert [text.get_text() for text in axes.get_yticklabels()] == NAMES


def test_reliability_is_the_accuracy_of_each_bin() -> None:
    probability, label, target = classified()
    confidence, correct = probability.max(dim=1).values, label == target
    measured = only_axes(reliability(confidence, correct)).lines[1]
    accuracy, mean = calibration_curve(correct.numpy(), confidence.numpy(), n_bins=10)
    np.testing.assert_allclose(measured.get_xdata(), mean, rtol=1e-5)
    np.testing.assert_allclose(measured.get_ydata(), accuracy, rtol=1e-5)


def test_precision_over_recall_of_classes_is_that_of_scikit_learn() -> None:
    probability, _, target = classified()
    lines = only_axes(precision_recall(probability, target, NAMES)).lines
    assert [line.get_label() for line in lines] == NAMES
    for number, line in enumerate(lines):
        precision, recall, _ = metrics.precision_recall_curve(target == number, probability[:, number])
        # scikit-learn's are from the lowest threshold, and end in an added point
        np.testing.assert_allclose(line.get_xdata(), recall[:-1][::-1], rtol=1e-5)
        np.testing.assert_allclose(line.get_ydata(), precision[:-1][::-1], rtol=1e-5)


def test_a_class_without_samples_has_no_curve() -> None:
    probability, _, _ = classified(20)
    lines = only_axes(precision_recall(probability, torch.ones(20, dtype=torch.long), NAMES)).lines
    assert [line.get_label() for line in lines] == ["dog"]


def test_many_curves_have_no_legend() -> None:
    points = {str(number): (torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.5])) for number in range(13)}
    assert only_axes(precision_over_recall(points)).get_legend() is None
    assert len(only_axes(precision_over_recall(dict(list(points.items())[:12]))).get_legend().texts) == 12
    assert only_axes(precision_over_recall({})).get_legend() is None


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_scatter_shows_every_sample_and_where_errors_are_zero(slope: float) -> None:
    x, y = torch.randn(50), torch.randn(50)
    axes = only_axes(scatter(x, y, "target", "predicted", slope))
    np.testing.assert_allclose(axes.collections[0].get_offsets(), torch.stack([x, y], dim=1))
    ends = np.array([x.min(), x.max()])
    np.testing.assert_allclose(axes.lines[0].get_xydata(), np.stack([ends, slope * ends], axis=1), rtol=1e-6)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("target", "predicted")


def test_of_many_samples_scatter_shows_evenly_spaced_ones() -> None:
    x = torch.arange(2.5 * MOST_POINTS)
    shown = only_axes(scatter(x, x, "x", "y")).collections[0].get_offsets()[:, 0]
    assert len(shown) <= MOST_POINTS
    assert set(np.diff(shown)) == {3}


def test_the_histogram_has_the_counts_of_finite_values() -> None:
    values = torch.cat([torch.randn(300), torch.tensor([math.nan, math.inf])])
    [stairs] = only_axes(histogram(values, "loss")).patches
    counts, edges, _ = stairs.get_data()
    expected, expected_edges = np.histogram(values[:300].double(), bins=30)
    assert (counts == expected).all()
    np.testing.assert_allclose(edges, expected_edges)


def test_a_histogram_may_have_ends_of_its_own() -> None:
    [stairs] = only_axes(histogram(torch.full((5,), 0.75), "IoU", (0.0, 1.0))).patches
    counts, edges, _ = stairs.get_data()
    assert (edges[0], edges[-1], counts[22], sum(counts)) == (0, 1, 5, 5)


def test_curves_begin_at_one() -> None:
    axes = only_axes(curves({"mse": torch.tensor([1.0, 4.0]), "mae": torch.tensor([0.5, 3.0])}, "step", "error"))
    assert {line.get_label(): line.get_xydata().tolist() for line in axes.lines} == {
        "mse": [[1, 1], [2, 4]],
        "mae": [[1, 0.5], [2, 3]],
    }
    assert axes.get_ylim()[0] == 0


def test_rows_of_classes_are_those_of_scikit_learn() -> None:
    _, label, target = classified()
    label[label == 2] = 0  # a class that is never predicted
    rows = class_rows(label, target, NAMES)
    columns: Any = metrics.precision_recall_fscore_support(target, label, zero_division=0)  # type: ignore[arg-type]
    for name, column in zip(("precision", "recall", "F1", "samples"), columns, strict=True):
        assert [row[name] for row in rows] == pytest.approx(list(column))
    assert [row["class"] for row in rows] == NAMES


def test_scores_without_counts_are_zero() -> None:
    nothing = torch.zeros(1, dtype=torch.long)
    assert score_rows(nothing, nothing, nothing, ["cat"]) == [{"class": "cat", "precision": 0, "recall": 0, "F1": 0}]


def test_rows_of_the_spread_are_quantiles_of_finite_values() -> None:
    values = torch.randn(101)
    rows = spread_rows({"loss": torch.cat([values, torch.tensor([math.nan])]), "none": torch.tensor([math.nan])})
    levels = {"lowest": 0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "highest": 1}
    expected = {name: np.quantile(values, level) for name, level in levels.items()}
    assert rows[0].pop("score") == "loss"
    assert rows[0] == pytest.approx(expected | {"mean": values.double().mean().item()})
    assert rows[1] == {"score": "none"}


def test_errors_by_target_are_those_of_tenths_of_the_samples() -> None:
    target, noise = torch.randperm(1000).double(), torch.randn(1000).double()
    rows = error_rows(target + noise, target)
    order = target.argsort()
    for row, part in zip(rows, order.view(10, 100), strict=True):
        assert row == pytest.approx(
            {
                "target from": target[part[0]].item(),
                "to": target[part[-1]].item(),
                "samples": 100,
                "mean error": noise[part].mean().item(),
                "MAE": noise[part].abs().mean().item(),
            }
        )


def test_equal_targets_are_in_one_group() -> None:
    target = torch.tensor([5.0] * 15 + [1.0, 2.0, 7.0])
    rows = error_rows(target + 1, target)
    assert sum(row["samples"] for row in rows) == len(target)
    assert [(row["target from"], row["to"]) for row in rows] == [(1, 1), (2, 2), (5, 7)]
    assert all(row["mean error"] == row["MAE"] == 1 for row in rows)


def test_rows_of_quantiles_are_shares_of_targets() -> None:
    below = torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.5]])
    assert quantile_rows([0.2, 0.8], below) == [
        {"quantile": 0.2, "targets at or below": 0.25},
        {"quantile": 0.8, "targets at or below": 0.625},
    ]


def test_losses_of_sequences_are_means_over_their_own_tokens() -> None:
    report = loss_report(torch.tensor([6.0, 0.0, 2.0]), torch.tensor([3, 0, 4]))
    assert report.samples["loss"].tolist() == pytest.approx([2.0, math.nan, 0.5], nan_ok=True)
    assert report.rankings["Largest losses"].tolist() == [2.0, -math.inf, 0.5]
    assert report.tables["Single sequences"][0]["mean"] == 1.25
