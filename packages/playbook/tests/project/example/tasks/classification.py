"""Classification: one of K classes for every sample."""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from playbook import OptimizerFactory, ScheduleFactory, Task, UserError

Batch = tuple[Tensor, Tensor]


class Classification(Task):
    """Cross-entropy over logits (B, K) against class indices (B,), measured by accuracy.

    Args:
        net: maps the inputs to logits (B, K).
        num_classes: number of classes K, at least 2.
        optimizer: makes the optimizer from parameters. Defaults to AdamW.
        schedule: makes a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name, as in [{pattern: net.head, lr_factor: 10}].
        label_smoothing: share of the target spread over all classes, in [0, 1].

    Raises:
        ValueError: fewer than two classes.
        UserError: a net with another number of outputs, or a label outside 0 … K - 1.
    """

    loss_name = "cross-entropy"

    def __init__(
        self,
        net: nn.Module,
        num_classes: int = 10,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        parameter_groups: list[dict[str, Any]] | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        if num_classes < 2:
            raise ValueError(f"num_classes: expected at least 2, got {num_classes}")
        accuracy = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        super().__init__(net, optimizer, schedule, MetricCollection({"accuracy": accuracy}), parameter_groups)
        self.num_classes = num_classes
        self.label_smoothing = label_smoothing

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self._step("train", batch)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("test", batch)

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: `label` (B,), `probability` (B, K) and the `target` (B,) of the batch."""
        inputs, target = batch
        probability = self(inputs).softmax(dim=-1)  # (B, K)
        return {"label": probability.argmax(dim=-1), "probability": probability, "target": target}

    def _step(self, stage: str, batch: Batch) -> Tensor:
        inputs, target = batch
        logits = self(inputs)
        if logits.shape != (len(target), self.num_classes):
            expected = (len(target), self.num_classes)
            raise UserError(f"num_classes: expected logits of shape {expected}, got {tuple(logits.shape)}")
        if target.max() >= self.num_classes:
            raise UserError(
                f"num_classes: labels run from {target.min()} to {target.max()}, expected 0 to {self.num_classes - 1}"
            )
        loss = cross_entropy(logits, target, label_smoothing=self.label_smoothing)
        self.log_step(stage, loss, len(target), preds=logits, target=target)
        return loss
