"""Metrics for rare classes against scikit-learn, and messages about labels."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from torch import Tensor
from torchmetrics import MetricCollection

from playbook.errors import UserError
from src.ops.class_metrics import RARE_CLASS_METRICS, check_labels, rare_class_metrics


def measured(logits: Tensor, target: Tensor, *names: str) -> dict[str, float]:
    """Over batches of 7, of which the last is shorter."""
    metrics = MetricCollection(rare_class_metrics(logits.shape[1], names or tuple(RARE_CLASS_METRICS)))
    for rows in torch.arange(len(target)).split(7):
        metrics.update(logits[rows], target[rows])
    return {name: value.item() for name, value in metrics.compute().items()}


def rare(num_classes: int, num_samples: int = 200) -> tuple[Tensor, Tensor]:
    """Logits, with ties, that know a little about the targets, of which few are of the last class."""
    generator = torch.Generator().manual_seed(0)
    shares = torch.tensor([0.9 / (num_classes - 1)] * (num_classes - 1) + [0.1])
    target = shares.multinomial(num_samples, replacement=True, generator=generator)
    logits = torch.randn(num_samples, num_classes, generator=generator) + torch.eye(num_classes)[target]
    return logits.mul(2).round() / 2, target


def test_two_classes_are_measured_by_the_second_one() -> None:
    logits, target = rare(2)
    share = logits.softmax(1)[:, 1].numpy()
    expected = {
        "f1": f1_score(target, logits.argmax(1)),
        "auroc": roc_auc_score(target, share),
        "average_precision": average_precision_score(target, share),
    }
    assert len(np.unique(share)) < 100, "there are ties"
    assert measured(logits, target) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("num_classes", [3, 5])
def test_more_classes_are_measured_by_the_mean(num_classes: int) -> None:
    logits, target = rare(num_classes)
    shares = logits.softmax(1).numpy()
    one_hot = np.eye(num_classes)[target]
    expected = {
        "f1": f1_score(target, logits.argmax(1), average="macro"),
        "auroc": roc_auc_score(one_hot, shares, average="macro"),
        "average_precision": average_precision_score(one_hot, shares, average="macro"),
    }
    assert measured(logits, target) == pytest.approx(expected, abs=1e-6)


def test_classes_that_do_not_occur_are_no_part_of_the_mean() -> None:
    """F1 counts a class that is predicted with 0, as scikit-learn does."""
    logits, target = rare(4)
    target[target == 1] = 0
    present = [0, 2, 3]
    assert 1 in logits.argmax(1)
    shares, one_hot = logits.softmax(1).numpy()[:, present], np.eye(4)[target][:, present]
    expected = {
        "f1": f1_score(target, logits.argmax(1), average="macro"),
        "auroc": roc_auc_score(one_hot, shares, average="macro"),
        "average_precision": average_precision_score(one_hot, shares, average="macro"),
    }
    assert measured(logits, target) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_samples_of_a_single_class_have_no_ranking(num_classes: int) -> None:
    """Without a warning, which would be an error here."""
    found = measured(torch.eye(num_classes)[[0] * 9], torch.zeros(9, dtype=torch.int64))
    assert np.isnan([found["auroc"], found["average_precision"]]).all()
    assert found["f1"] == (0 if num_classes == 2 else 1)


def test_the_next_epoch_starts_without_the_samples_of_the_last() -> None:
    metrics = MetricCollection(rare_class_metrics(2, ["auroc"]))
    metrics.update(torch.eye(2)[[0, 1]], torch.tensor([1, 0]))
    assert metrics.compute()["auroc"] == 0
    metrics.reset()
    metrics.update(torch.eye(2)[[0, 1]], torch.tensor([0, 1]))
    assert metrics.compute()["auroc"] == 1


def test_unknown_metrics() -> None:
    message = "metrics: expected some of f1, auroc, average_precision, got recall, fbeta"
    with pytest.raises(ValueError, match=message):
        rare_class_metrics(2, ["f1", "recall", "fbeta"])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.rand(4), "targets: expected classes, got numbers, as in a regression; set --data.target_kind classes"),
        (torch.rand(4, 2), r"num_classes: expected labels \(B,\) or probabilities \(4, 3\), got \(4, 2\)"),
        (torch.ones(4, 3).long(), r"num_classes: expected labels \(B,\) or probabilities \(4, 3\), got \(4, 3\)"),
        (torch.tensor([0, 1, 2, 3]), "num_classes: labels run from 0 to 3, expected 0 to 2"),
    ],
)
def test_targets_that_do_not_fit(target: Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_labels(torch.zeros(4, 3), target, 3)


@pytest.mark.parametrize(
    ("logits", "target", "fits"),
    [
        ((4, 5, 3), torch.zeros(4).long(), True),
        ((4, 5, 3), torch.zeros(4, 5).long(), True),
        ((4, 5, 3), torch.zeros(4, 3), True),
        ((4, 5, 3), torch.zeros(4, 5, 3), True),
        ((4, 5, 3), torch.zeros(4, 3).long(), False),
        ((4, 5, 2), torch.zeros(4).long(), False),
        ((4, 3), torch.zeros(4, 5).long(), False),
    ],
)
def test_ensembles(logits: tuple[int, ...], target: Tensor, fits: bool) -> None:
    def check(**options: Any) -> None:
        check_labels(torch.zeros(logits), target, 3, **options)

    if fits:
        check(has_members=True)
    else:
        with pytest.raises(UserError, match="num_classes"):
            check(has_members=True)
    with pytest.raises(UserError, match="num_classes"):
        check()
