"""Batches that wait, against torchmetrics' own collections."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import Accuracy, ConfusionMatrix, MeanMetric, Metric, MetricCollection
from torchmetrics.aggregation import RunningMean

from playbook.metrics import MOST_BATCHES, BatchedMetrics

NUM_CLASSES = 3


def collection(**others: Metric) -> MetricCollection:
    metrics = {
        "accuracy": Accuracy("multiclass", num_classes=NUM_CLASSES),
        "macro": Accuracy("multiclass", num_classes=NUM_CLASSES, average="macro"),
        "confusion": ConfusionMatrix("multiclass", num_classes=NUM_CLASSES),
        "loss": MeanMetric(),
    }
    return MetricCollection({**metrics, **others}, prefix="train/")


def batches(sizes: list[int]) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "preds": torch.randn(size, NUM_CLASSES, generator=generator),
            "target": torch.randint(NUM_CLASSES, (size,), generator=generator),
            "value": torch.rand((), generator=generator),
            "weight": size,
        }
        for size in sizes
    ]


@pytest.mark.parametrize("sizes", [[4] * 7, [4, 4, 3], [8] * (2 * MOST_BATCHES + 5), [30_000, 4]], ids=str)
def test_results_are_those_of_an_update_for_each_batch(sizes: list[int]) -> None:
    reference, metrics = collection(), BatchedMetrics(collection())
    for _ in range(2):  # epochs
        for batch in batches(sizes):
            reference.update(**batch)
            metrics.update(**batch)
        torch.testing.assert_close(metrics.compute(), reference.compute())
        reference.reset()
        metrics.reset()


def test_updates_are_few() -> None:
    metrics = BatchedMetrics(collection())
    calls: list[int] = []
    update = metrics["loss"].update
    metrics["loss"].update = lambda **values: calls.append(len(values["value"])) or update(**values)
    for batch in batches([4] * (MOST_BATCHES + 3)):
        metrics.update(**batch)
    assert calls == [MOST_BATCHES]
    assert len(metrics.pending) == 3
    metrics.compute()
    assert calls == [MOST_BATCHES, 3]


class OfBatches(Metric):
    """The mean over batches of the share of hits: another number if batches are taken in together."""

    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", default=torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("count", default=torch.zeros(()), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.total += (preds.argmax(1) == target).float().mean()
        self.count += 1

    def compute(self) -> Tensor:
        return self.total / self.count


def test_windows_over_batches_do_not_wait() -> None:
    metrics = BatchedMetrics(MetricCollection({"newest": RunningMean(window=1)}))
    for value in (1.0, 2.0, 3.0):
        metrics.update(value=torch.tensor(value))
    assert metrics.compute() == {"newest": 3.0}


def test_metrics_of_batches_do_not_wait() -> None:
    reference, metrics = collection(other=OfBatches()), BatchedMetrics(collection(other=OfBatches()))
    for batch in batches([4, 1, 4]):
        reference.update(**batch)
        metrics.update(**batch)
    assert metrics.pending == []
    torch.testing.assert_close(metrics.compute(), reference.compute())


def test_a_metric_that_is_read_has_all_batches() -> None:
    reference, metrics = collection(), BatchedMetrics(collection())
    for batch in batches([4, 4]):
        reference.update(**batch)
        metrics.update(**batch)
    assert torch.equal(metrics["train/accuracy"].compute(), reference["train/accuracy"].compute())


def test_types_that_change_do_not_mix() -> None:
    reference, metrics = collection(), BatchedMetrics(collection())
    batch = batches([4])[0]
    for preds in (batch["preds"], batch["preds"].bfloat16(), batch["preds"].argmax(1)):
        reference.update(**{**batch, "preds": preds})
        metrics.update(**{**batch, "preds": preds})
    torch.testing.assert_close(metrics.compute(), reference.compute())


def test_groups_and_names_stay() -> None:
    metrics = BatchedMetrics(
        MetricCollection({"a": MeanMetric(), "b": MeanMetric()}, postfix="_x", compute_groups=False)
    )
    metrics.update(value=torch.tensor(2.0))
    assert set(metrics.clone(prefix="val/").compute()) == {"val/a_x", "val/b_x"}
    assert metrics.compute() == {"a_x": 2.0, "b_x": 2.0}
    assert not metrics.compute_groups


def test_what_waits_moves_with_its_metrics() -> None:
    """Without an update: where a checkpoint continues, sums would be rounded otherwise."""
    metrics = BatchedMetrics(collection())
    for batch in batches([4, 4]):
        metrics.update(**batch)
    metrics.to("meta")
    assert [batch["preds"].device.type for batch in metrics.pending] == ["meta", "meta"]
    assert not any(metric.update_called for metric in metrics.values())
