"""Metrics of several labels, against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score

from src.ops.label_metrics import F1, MeanAveragePrecision


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 4, generator=generator)
    return logits, (logits + torch.randn(50, 4, generator=generator) > 0.5).float()


def test_mean_average_precision() -> None:
    logits, target = samples()
    metric = MeanAveragePrecision()
    for start in (0, 20):
        metric.update(logits[start : start + 30 - start // 2], target[start : start + 30 - start // 2])
    metric.reset()
    metric.update(logits[:20], target[:20])
    metric.update(logits[20:], target[20:])
    assert float(metric.compute()) == pytest.approx(average_precision_score(target, logits, average="macro"))


def test_labels_that_all_or_no_samples_have_do_not_count() -> None:
    logits, target = samples()
    target[:, 1], target[:, 3] = 0, 1
    metric = MeanAveragePrecision()
    metric.update(logits, target)
    assert float(metric.compute()) == pytest.approx(average_precision_score(target[:, ::2], logits[:, ::2]))
    metric.reset()
    metric.update(logits, torch.zeros_like(target))
    assert metric.compute().isnan()


@pytest.mark.parametrize("macro", [False, True])
@pytest.mark.parametrize("threshold", [0.5, 0.7])
def test_f1(macro: bool, threshold: float) -> None:
    logits, target = samples()
    metric = F1(4, threshold, macro)
    metric.update(logits[:20], target[:20])
    metric.update(logits[20:], target[20:])
    expected = f1_score(target, (logits.sigmoid() >= threshold).long(), average="macro" if macro else "micro")
    assert float(metric.compute()) == pytest.approx(expected)


def test_f1_without_labels_is_zero() -> None:
    metric = F1(3, 0.5, macro=True)
    metric.update(torch.full((2, 3), -5.0), torch.zeros(2, 3))
    assert metric.compute() == 0
    metric.update(torch.tensor([[5.0, -5.0, -5.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    assert np.isclose(metric.compute(), 1), "of the labels that occur"
