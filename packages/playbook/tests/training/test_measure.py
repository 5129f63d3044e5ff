"""Which metric decides the best epoch, and in which direction."""

from typing import Any

import pytest
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import BinaryAccuracy

from playbook.testing.line import Line
from playbook.training.measure import direction, logged_measure, own_measure


class Named(Line):
    """Names its metric, as tasks do."""

    monitor, monitor_mode = "val/f1", "max"


class Mistaken(Line):
    """Has attributes of these names that mean something else."""

    monitor, monitor_mode = "val/f1", 3


class Measured(Line):
    """Has metrics that state their direction, and one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = MetricCollection({"accuracy": BinaryAccuracy(), "mean": MeanMetric()}, prefix="val/")


def test_metric_of_a_task() -> None:
    assert own_measure(Named()) == ("val/f1", "max")
    assert own_measure(Line()) is None
    assert own_measure(Mistaken()) is None


@pytest.mark.parametrize(
    ("module", "names", "measure"),
    [
        (Named(), {"val/f1", "val/loss"}, ("val/f1", "max")),
        (Named(), {"val/f1/dataloader_idx_0", "val/loss"}, ("val/f1/dataloader_idx_0", "max")),
        (Named(), {"val/loss", "train/f1"}, ("val/loss", "min")),
        (Line(), {"valid_loss", "val_loss", "loss"}, ("val_loss", "min")),
        (Line(), {"valid_loss", "val_loss/dataloader_idx_0"}, ("val_loss/dataloader_idx_0", "min")),
        (Line(), {"val_loss", "val/loss"}, ("val/loss", "min")),
        (Line(), {"train_loss", "val_acc", "val_loss/dataloader_idx_1"}, None),
        (Line(), set(), None),
    ],
)
def test_first_of_the_logged_names(module: Any, names: set[str], measure: tuple[str, str] | None) -> None:
    assert logged_measure(module, names) == measure


@pytest.mark.parametrize(
    ("module", "monitor", "mode"),
    [
        (Named(), "val/f1", "max"),
        (Named(), "val/x", None),
        (Measured(), "val/accuracy", "max"),
        (Measured(), "val/mean", None),
    ],
)
def test_direction(module: Any, monitor: str, mode: str | None) -> None:
    assert direction(module, monitor) == mode
