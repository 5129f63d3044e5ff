"""What metrics hold at a moment, so that a step can be taken back."""

from typing import Any

from lightning.pytorch import Trainer
from torch import Tensor
from torchmetrics import Metric

from playbook.metrics import BatchedMetrics
from playbook.training.lightning.results import logged_values


class MetricStates:
    """What all metrics, and the sums of self.log, hold at this moment."""

    def __init__(self, trainer: Trainer) -> None:
        self.results: Any = logged_values(trainer)
        self.logged = set(self.results)
        modules = [*trainer.lightning_module.modules(), *self.results.values()]
        metrics = [module for module in modules if isinstance(module, Metric)]
        self.pending = [(module, list(module.pending)) for module in modules if isinstance(module, BatchedMetrics)]
        self.states = [(metric, _copied(metric.metric_state), metric._update_count) for metric in metrics]

    def restore(self) -> None:
        for collection, batches in self.pending:
            collection.wait_for(batches)
        for key in set(self.results) - self.logged:
            del self.results[key]
        for metric, state, updates in self.states:
            for name, value in _copied(state).items():
                setattr(metric, name, value)
            metric._update_count = updates


def _copied(state: Any) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, Tensor) else list(value) for name, value in state.items()}
