"""Classification: one of K classes for every sample."""

from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn

from playbook import OptimizerFactory, ScheduleFactory, Task, TestReport, UserError, class_name, require_room
from src.ops.class_counts import require_class_count
from src.ops.class_metrics import CalibrationError, check_labels, class_metrics, rare_class_metrics
from src.ops.class_weights import check_weights, inverse_frequency, weights_by_name, weights_of
from src.ops.losses import weighted_cross_entropy
from src.ops.members import flatten_members
from src.ops.pictures import as_image, captioned, enlarged
from src.ops.result_charts import class_report
from src.ops.vocabularies import vocabulary_from

UNKNOWN = -1  # the target of an unlabelled sample
Batch = tuple[Tensor | dict[str, Tensor], Tensor]


class Classification(Task):
    """Cross-entropy over logits (B, K) against class indices (B,), measured by accuracy.

    Targets may also be probabilities (B, K), as for mixed samples; accuracy then counts the most likely class.

    In training, a net with k members, such as TabM, returns the logits of each (B, k, K). The loss and the training
    metrics are then means over the members. Targets may be different for each member, (B, k), as its inputs may be.

    Args:
        net: maps the inputs to logits (B, K).
        num_classes: number of classes K, at least 2.
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3 and
            weight_decay=0.01.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name; the last matching rule applies. Each has a `pattern` such as
            net.stem.*, and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in
            [{pattern: net.head, lr_factor: 10}].
        label_smoothing: share of the target that is spread over all classes, in [0, 1] (Szegedy et al. 2016).
        top_k: if above 1, also log how often the target is among the k most likely classes, as `top5_accuracy` for 5.
        calibration_bins: if above 0, also log in validation and test the expected calibration error with this many
            bins of confidence, as `calibration_error` (Guo et al. 2017 use 15).
        class_weights: weights of the classes in the training loss. auto uses N / (K n) for a class with n of the N
            training samples; a dict sets weights of at least 0 by name, as in {daisy: 2.0}, and 1 for the others.
            Validation and test losses stay unweighted. Defaults to 1 for every class. On a long-tailed Fashion-MNIST,
            auto raised test/macro_accuracy from 0.696 to 0.809 (3 seeds), and lowered the accuracy on validation
            images as imbalanced as the training images from 0.904 to 0.816.
        macro_accuracy: whether to also log the mean per-class accuracy, as `macro_accuracy`.
        metrics: metrics for rare classes to also log in validation and test: f1 of the most likely class; auroc, the
            area under the receiver operating characteristic; average_precision, the area under the curve of precision
            over recall. With 2 classes, they are those of the second class; with more, unweighted means over the
            classes, for auroc and average_precision over those that occur. The latter two keep the probabilities of all
            samples in memory until the end of the epoch.

    Raises:
        ValueError: a value is out of range, the net does not have K outputs, or a label is outside 0 … K - 1.
    """

    monitor, monitor_mode = "val/accuracy", "max"
    loss_name = "cross-entropy"
    program_outputs = ("logits",)
    class_weight: Tensor | None  # a buffer

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
        class_weights: Literal["auto"] | dict[str, float] | None = None,
        macro_accuracy: bool = False,
        metrics: list[Literal["f1", "auroc", "average_precision"]] | None = None,
    ) -> None:
        if num_classes < 2:
            raise ValueError(f"num_classes: expected at least 2, got {num_classes}")
        if not 1 <= top_k <= num_classes:
            raise ValueError(f"top_k: expected 1 to num_classes {num_classes}, got {top_k}")
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing: expected a share in [0, 1], got {label_smoothing}")
        if calibration_bins < 0:
            raise ValueError(f"calibration_bins: expected at least 0, got {calibration_bins}")
        if isinstance(class_weights, dict):
            check_weights(class_weights)
        super().__init__(net, optimizer, schedule, class_metrics(num_classes, top_k, macro_accuracy), parameter_groups)
        self.hparams["metrics"] = metrics  # the base does not save its own argument of this name
        for collection in (self.val_metrics, self.test_metrics):
            if calibration_bins:
                collection.add_metrics({"calibration_error": CalibrationError(num_classes, calibration_bins)})
            collection.add_metrics(rare_class_metrics(num_classes, metrics or ()))
        self.num_classes = num_classes
        self.label_smoothing = label_smoothing
        self.class_weights: Literal["auto"] | dict[str, float] | None = class_weights
        self.weighs_samples = class_weights is None
        weight = None if class_weights is None else torch.ones(num_classes)
        self.register_buffer("class_weight", weight, persistent=False)  # (K,), in the order of the classes

    def setup(self, stage: str) -> None:
        require_room(self.net, self.facts)
        if self.facts.get("multilabel"):  # targets of 0 and 1 would be taken for probabilities
            raise UserError("--model: the data has several labels a sample; expected MultilabelClassification")
        if stage == "fit":
            require_class_count(self.num_classes, self.facts)
        if stage != "fit" or self.class_weight is None:
            return
        if isinstance(self.class_weights, dict):
            names = [class_name(self.facts, number) for number in range(self.num_classes)]
            weights = weights_by_name(self.class_weights, names)
        else:
            weights = inverse_frequency(self.class_counts(self.num_classes))
        if len(weights) != self.num_classes:
            raise UserError(f"num_classes: the data has {len(weights)} classes, expected {self.num_classes}")
        self.class_weight = self.class_weight.new_tensor(weights)

    def weight(self, batch: Batch) -> Tensor | float:
        """Number of samples in a batch, or the sum of their class weights, averaged over members with own targets."""
        _, target = batch
        if self.class_weight is None:
            return len(target)
        weights = weights_of(target, self.class_weight)  # (B,) or (B, k)
        return weights.reshape(len(target), -1).mean(dim=1).sum()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss, _ = self._step("train", batch, batch_idx)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch, batch_idx)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: `label` and `target` (B,), and `probability` (B, K)."""
        _, logits = self._step("test", batch, batch_idx)
        return {"label": logits.argmax(dim=-1), "target": batch[1], "probability": logits.float().softmax(dim=-1)}

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: `label` (B,), `probability` (B, K) and the `target` (B,) of the batch, -1 if unknown."""
        inputs, target = batch
        probability = self(inputs).softmax(dim=-1)  # (B, K)
        return {"label": probability.argmax(dim=-1), "probability": probability, "target": target}

    def example_step(self, batch: Batch) -> dict[str, Any]:
        """Predictions for the report of a run; of texts, also `text`, what the net reads of each."""
        inputs, _ = batch
        outputs: dict[str, Any] = self.predict_step(batch, 0)
        if "tokenizer" in self.facts and isinstance(inputs, dict) and "tokens" in inputs:
            vocabulary = vocabulary_from(self.facts["tokenizer"])
            outputs["text"] = [vocabulary.decode(tokens) for tokens in inputs["tokens"].tolist()]
        return outputs

    def answer(self, outputs: dict[str, Any], facts: dict[str, Any], top: int = 5) -> list[dict[str, Any]]:
        """Names the most likely classes.

        Args:
            outputs: returned by predict_step or example_step.
            facts: with `classes`; without them, numbers are used as names.
            top: number of classes in an answer, at least 1; the second one is `class_2` with `probability_2`.
        """
        if top < 1:
            raise UserError(f"top: expected at least 1 class, got {top}")
        likeliest = outputs["probability"].float().topk(min(top, self.num_classes), dim=-1)
        answers = []
        for numbers, shares in zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True):
            answer: dict[str, Any] = {}
            for place, (number, share) in enumerate(zip(numbers, shares, strict=True)):
                end = f"_{place + 1}" if place else ""
                answer |= {f"class{end}": class_name(facts, number), f"probability{end}": share}
            answers.append(answer)
        for answer, target in zip(answers, outputs["target"].tolist(), strict=True):
            if target != UNKNOWN:
                answer["target"] = class_name(facts, target)
        for answer, text in zip(answers, outputs.get("text", ()), strict=False):
            answer["text"] = text
        return answers

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        """Which classes are confused, how far probabilities can be trusted, and which samples to look at.

        Args:
            outputs: of test_step, for all test samples.
            facts: with `classes`; without them, numbers are used as names.
        """
        names = [class_name(facts, number) for number in range(self.num_classes)]
        return class_report(outputs["label"], outputs["target"], outputs["probability"], names)

    def postprocessing(self, facts: dict[str, Any]) -> dict[str, Any]:
        return {"kind": "classes", "names": [class_name(facts, k) for k in range(self.num_classes)], "top": 5}

    def draw(self, inputs: Tensor, answer: dict[str, Any]) -> Image.Image:
        """Writes class and probability above the image."""
        return captioned(enlarged(as_image(inputs)), f"{answer['class']} {answer['probability']:.2f}")

    def _step(self, stage: str, batch: Batch, batch_idx: int) -> tuple[Tensor, Tensor]:
        """The mean loss, and the logits (B, K)."""
        inputs, target = batch
        logits = self(inputs)
        if batch_idx == 0 or target.device.type == "cpu":  # elsewhere, looking at every label would wait for the device
            check_labels(logits, target, self.num_classes, has_members=stage == "train")
        pairs = flatten_members(logits, target, target_dims=int(target.is_floating_point()))
        class_weight = self.class_weight if stage == "train" else None
        loss, weight = weighted_cross_entropy(*pairs, class_weight, self.label_smoothing)
        preds, labels = pairs
        weight = weight / (len(labels) // len(target))  # of samples, not of each member's, as in `weight`
        self.log_step(stage, loss, weight, preds=preds, target=labels if labels.ndim == 1 else labels.argmax(1))
        return loss, logits
