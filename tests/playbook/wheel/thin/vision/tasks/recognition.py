"""Recognition: which of K classes an image shows."""

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from playbook import OptimizerFactory, ScheduleFactory, Task

Batch = tuple[Tensor, Tensor]


class Recognition(Task):
    """Cross-entropy over logits (B, K) against class indices (B,), measured by accuracy.

    Args:
        net: maps images to logits (B, K).
        num_classes: number of classes K.
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3.
        schedule: callable that builds the learning-rate schedule. Defaults to a constant rate.
    """

    loss_name = "cross-entropy"

    def __init__(
        self,
        net: nn.Module,
        num_classes: int = 10,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
    ) -> None:
        accuracy = MulticlassAccuracy(num_classes, average="micro")
        super().__init__(net, optimizer, schedule, MetricCollection({"accuracy": accuracy}))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self._step("train", batch)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("test", batch)

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        image, target = batch
        return {"label": self(image).argmax(dim=-1), "target": target}

    def _step(self, stage: str, batch: Batch) -> Tensor:
        image, target = batch
        logits = self(image)  # (B, K)
        loss = cross_entropy(logits, target)
        self.log_step(stage, loss, len(target), preds=logits, target=target)
        return loss
