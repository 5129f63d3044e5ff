"""Classification: one of K classes for every sample."""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

from playbook import OptimizerFactory, ScheduleFactory, Task, UserError

Batch = tuple[Tensor | dict[str, Tensor], Tensor]


class Classification(Task):
    """Cross-entropy over logits (B, K) against class indices (B,), measured by accuracy.

    Probabilities (B, K), as mixed samples have them, do in place of indices; accuracy then asks for the likeliest.

    Args:
        net: maps the inputs to logits (B, K).
        num_classes: number of classes K, at least 2.
        optimizer: makes the optimizer from parameters; AdamW with lr 1e-3 and weight decay 0.01 when left out.
        schedule: makes a learning-rate schedule from the optimizer; a constant rate when left out.
        parameter_groups: rules for parameters by name, of which the last counts: each a `pattern` such as net.stem.*,
            and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in [{pattern: net.head, lr_factor: 10}].
        label_smoothing: share of the target spread over all classes, in [0, 1] (Szegedy et al. 2016).
        top_k: also measure how often the target is among the k likeliest classes, as `top5_accuracy`; 1 does not.
        calibration_bins: also measure in validation and test how far confidence is from accuracy, over so many bins of
            confidence, as `calibration_error` (Guo et al. 2017, who take 15); 0 does not.
        test_views: how often test and prediction look at every image (B, C, H, W), for the mean of the logits: 1, as it
            is; 2, mirrored as well (Page 2018); 6, both also moved by a pixel down and right and up and left, where the
            middle counts as much as these together (Jordan 2024).

    Raises:
        ValueError: a value out of its range, a net with other than K outputs, or a label outside 0 … K - 1.
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
        top_k: int = 1,
        calibration_bins: int = 0,
        test_views: int = 1,
    ) -> None:
        if num_classes < 2:
            raise ValueError(f"num_classes: expected at least 2, got {num_classes}")
        if not 1 <= top_k <= num_classes:
            raise ValueError(f"top_k: expected 1 to num_classes {num_classes}, got {top_k}")
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing: expected a share in [0, 1], got {label_smoothing}")
        if test_views not in (1, 2, 6):
            raise ValueError(f"test_views: expected 1, 2 or 6, got {test_views}")
        if calibration_bins < 0:
            raise ValueError(f"calibration_bins: expected at least 0, got {calibration_bins}")
        # _check looks at shapes and labels; torchmetrics need not do so again
        measured = {"accuracy": MulticlassAccuracy(num_classes, average="micro", validate_args=False)}
        if top_k > 1:
            among = MulticlassAccuracy(num_classes, top_k, average="micro", validate_args=False)
            measured[f"top{top_k}_accuracy"] = among
        super().__init__(net, optimizer, schedule, MetricCollection(dict(measured)), parameter_groups)
        for metrics in (self.val_metrics, self.test_metrics) if calibration_bins else ():
            error = _CalibrationError(num_classes, calibration_bins, validate_args=False)
            metrics.add_metrics({"calibration_error": error})
        self.num_classes = num_classes
        self.label_smoothing = label_smoothing
        self.test_views = test_views

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self._step("train", batch, batch_idx)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch, batch_idx)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: `label` and `target` (B,)."""
        inputs, target = batch
        logits = self._from_views(inputs)  # (B, K)
        self._measure("test", logits, target, batch_idx)
        return {"label": logits.argmax(dim=-1), "target": target}

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: `label` (B,), `probability` (B, K) and the `target` (B,) of the batch."""
        inputs, target = batch
        probability = self._from_views(inputs).softmax(dim=-1)  # (B, K)
        return {"label": probability.argmax(dim=-1), "probability": probability, "target": target}

    def _from_views(self, inputs: Tensor | dict[str, Tensor]) -> Tensor:
        if self.test_views == 1:
            return self(inputs)
        if not isinstance(inputs, Tensor) or inputs.ndim != 4:
            raise UserError("test_views: expected images (B, C, H, W); leave it out for other inputs")

        def both(image: Tensor) -> Tensor:
            return (self(image) + self(image.flip(-1))) / 2

        if self.test_views == 2:
            return both(inputs)
        padded = pad(inputs, (1, 1, 1, 1), mode="reflect")
        return both(inputs) / 2 + (both(padded[..., :-2, :-2]) + both(padded[..., 2:, 2:])) / 4

    def _step(self, stage: str, batch: Batch, batch_idx: int) -> Tensor:
        inputs, target = batch
        return self._measure(stage, self(inputs), target, batch_idx)

    def _measure(self, stage: str, logits: Tensor, target: Tensor, batch_idx: int) -> Tensor:
        if batch_idx == 0 or target.device.type == "cpu":  # elsewhere, looking at every label would wait for the device
            self._check(logits, target)
        loss = cross_entropy(logits, target, label_smoothing=self.label_smoothing)
        self.log_step(stage, loss, len(target), preds=logits, target=target if target.ndim == 1 else target.argmax(1))
        return loss

    def _check(self, logits: Tensor, target: Tensor) -> None:
        if logits.shape != (len(target), self.num_classes):
            raise UserError(
                f"num_classes: expected logits of shape ({len(target)}, {self.num_classes}), "
                f"the net returned {tuple(logits.shape)}; set --model.num_classes and the net's own alike"
            )
        if target.ndim > 1:
            if target.shape != logits.shape:
                expected, got = tuple(logits.shape), tuple(target.shape)
                raise UserError(f"num_classes: expected labels (B,) or probabilities {expected}, got {got}")
            return
        low, high = target.min().item(), target.max().item()
        if low < 0 or high >= self.num_classes:
            raise UserError(f"num_classes: labels run from {low} to {high}, expected 0 to {self.num_classes - 1}")


class _CalibrationError(MulticlassCalibrationError):
    """Of logits: torchmetrics takes those that all lie in [0, 1] for probabilities, batch by batch."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds.float().softmax(dim=-1), target)
