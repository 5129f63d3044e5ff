"""Classification with several labels a sample: each of K classes is there or not."""

from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torchmetrics import MetricCollection

from playbook import OptimizerFactory, ScheduleFactory, Task, TestReport, UserError, class_name, require_room
from src.ops.class_counts import require_class_count
from src.ops.class_weights import check_weights, weights_by_name
from src.ops.label_metrics import F1, MeanAveragePrecision
from src.ops.pictures import as_image, captioned, enlarged
from src.ops.score_reports import label_report

LONGEST = 80  # characters above a picture
Batch = tuple[Tensor | dict[str, Tensor], Tensor]


class MultilabelClassification(Task):
    """Binary cross-entropy over logits (B, K) against targets (B, K) of 0 and 1, averaged over samples and classes.

    Measured by the mean average precision, `map`, and by F1 of the labels above a threshold: `f1` over all labels
    together, `macro_f1` as mean over labels. The first keeps the probabilities of all samples in memory until the end
    of an evaluation.

    Args:
        net: maps the inputs to logits (B, K).
        num_classes: number of classes K, at least 1.
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3 and
            weight_decay=0.01.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name; the last matching rule applies. Each has a `pattern` such as
            net.stem.*, and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in
            [{pattern: net.head, lr_factor: 10}].
        class_weights: weights in the training loss of the samples that have a label. auto uses (N - n) / n for a label
            that n of the N training samples have; a dict sets weights of at least 0 by name, as in {rain: 2.0}, and 1
            for the others. Defaults to 1 for every label.
        threshold: probability from which on a label is in the answer, in (0, 1).

    Raises:
        ValueError: a value is out of range.
        UserError: the net does not have K outputs, or targets are not (B, K).
    """

    monitor, monitor_mode = "val/map", "max"
    loss_name = "binary cross-entropy"
    program_outputs = ("logits",)
    class_weight: Tensor | None  # a buffer

    def __init__(
        self,
        net: nn.Module,
        num_classes: int = 10,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        parameter_groups: list[dict[str, Any]] | None = None,
        class_weights: Literal["auto"] | dict[str, float] | None = None,
        threshold: float = 0.5,
    ) -> None:
        if num_classes < 1:
            raise ValueError(f"num_classes: expected at least 1, got {num_classes}")
        if not 0 < threshold < 1:
            raise ValueError(f"threshold: expected a probability in (0, 1), got {threshold}")
        if isinstance(class_weights, dict):
            check_weights(class_weights)
        metrics = {"f1": F1(num_classes, threshold), "macro_f1": F1(num_classes, threshold, macro=True)}
        super().__init__(net, optimizer, schedule, MetricCollection(dict(metrics)), parameter_groups)
        for collection in (self.val_metrics, self.test_metrics):
            collection.add_metrics({"map": MeanAveragePrecision()})
        self.num_classes = num_classes
        self.threshold = threshold
        self.class_weights: Literal["auto"] | dict[str, float] | None = class_weights
        weight = None if class_weights is None else torch.ones(num_classes)
        self.register_buffer("class_weight", weight, persistent=False)  # (K,), in the order of the classes

    def setup(self, stage: str) -> None:
        require_room(self.net, self.facts)
        if stage != "fit":
            return
        require_class_count(self.num_classes, self.facts)
        if self.class_weight is None:
            return
        if isinstance(self.class_weights, dict):
            names = [class_name(self.facts, number) for number in range(self.num_classes)]
            weights = weights_by_name(self.class_weights, names)
        else:
            weights = rarity(self.facts)
        if len(weights) != self.num_classes:
            raise UserError(f"num_classes: the data has {len(weights)} classes, expected {self.num_classes}")
        self.class_weight = self.class_weight.new_tensor(weights)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self._step("train", batch)[0]

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: `probability` (B, K), the `target` (B, K), 0 or 1, and the `loss` (B,) of each sample."""
        _, logits = self._step("test", batch)
        target = batch[1]
        loss = binary_cross_entropy_with_logits(logits.float(), target.float(), reduction="none").mean(dim=1)
        return {"probability": logits.float().sigmoid(), "target": target.long(), "loss": loss}

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: `probability` (B, K), and the `target` of the batch, (B, K), or (B,) with -1 if it is unknown."""
        inputs, target = batch
        return {"probability": self(inputs).float().sigmoid(), "target": target}

    def answer(
        self, outputs: dict[str, Tensor], facts: dict[str, Any], top: int = 5, score: float | None = None
    ) -> list[dict[str, Any]]:
        """Names the labels above the threshold, and the most likely ones with their probabilities.

        Args:
            outputs: returned by predict_step.
            facts: with `classes`; without them, numbers are used as names.
            top: number of likely labels in an answer, at least 1; the second one is `label_2` with `probability_2`.
            score: probability from which on a label is named. Defaults to the threshold of the training.
        """
        if top < 1:
            raise UserError(f"top: expected at least 1 label, got {top}")
        if score is not None and not 0 <= score <= 1:
            raise UserError(f"score: expected a probability in [0, 1], got {score}")
        least = self.threshold if score is None else score
        names = [class_name(facts, number) for number in range(self.num_classes)]
        answers = []
        for probabilities in outputs["probability"]:
            answer: dict[str, Any] = {"labels": _named(probabilities >= least, names)}
            likeliest = probabilities.topk(min(top, self.num_classes))
            pairs = zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
            for place, (number, probability) in enumerate(pairs):
                end = f"_{place + 1}" if place else ""
                answer |= {f"label{end}": names[number], f"probability{end}": probability}
            answers.append(answer)
        if outputs["target"].ndim == 2:
            for answer, target in zip(answers, outputs["target"], strict=True):
                answer["target"] = _named(target > 0.5, names)
        return answers

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        """Which labels are found, and which samples to look at.

        Args:
            outputs: of test_step, for all test samples.
            facts: with `classes`; without them, numbers are used as names.
        """
        names = [class_name(facts, number) for number in range(self.num_classes)]
        return label_report(**outputs, threshold=self.threshold, names=names)

    def postprocessing(self, facts: dict[str, Any]) -> dict[str, Any]:
        names = [class_name(facts, number) for number in range(self.num_classes)]
        return {"kind": "labels", "names": names, "threshold": self.threshold, "top": 5}

    def draw(self, inputs: Tensor, answer: dict[str, Any]) -> Image.Image:
        """Writes the labels above the image, of many the first ones."""
        text = answer["labels"] or f"{answer['label']} {answer['probability']:.2f}"
        return captioned(enlarged(as_image(inputs)), text if len(text) <= LONGEST else f"{text[:LONGEST]} …")

    def _step(self, stage: str, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean loss, and the logits (B, K)."""
        inputs, target = batch
        logits = self(inputs)
        expected = (len(target), self.num_classes)
        if logits.shape != expected:
            raise UserError(f"num_classes: expected logits of shape {expected}, the net returned {tuple(logits.shape)}")
        if target.shape != expected:
            got = tuple(target.shape)
            raise UserError(
                f"targets: expected {expected} of 0 and 1, got {got}; one label a sample is for Classification, or "
                "--data.multilabel true makes them such targets"
            )
        weight = self.class_weight if stage == "train" else None
        loss = binary_cross_entropy_with_logits(logits.float(), target.float(), pos_weight=weight)
        self.log_step(stage, loss, len(target), preds=logits, target=target)
        return loss, logits


def rarity(facts: dict[str, Any]) -> list[float]:
    """How many samples lack each label for one that has it: (N - n) / n, and 1 for labels that none has.

    Args:
        facts: with `label_counts`, the n of each label, and `num_samples` N.

    Raises:
        UserError: the data provides none.
    """
    counts, total = facts.get("label_counts"), facts.get("num_samples")
    if counts is None or total is None:
        raise UserError(
            "class_weights: auto needs the number of training samples with each label, which the data does not "
            "provide; set self.facts['label_counts'] and ['num_samples'] in its setup, or weights by name"
        )
    return [(total - count) / count if count else 1.0 for count in counts]


def _named(is_label: Tensor, names: list[str]) -> str:
    return ", ".join(name for name, own in zip(names, is_label.tolist(), strict=True) if own)
