"""Node classification: one of K classes for every node of a graph."""

from types import MappingProxyType
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from playbook import OptimizerFactory, ScheduleFactory, Task, TestReport, UserError, class_name
from src.ops.class_counts import require_class_count
from src.ops.class_metrics import check_labels, class_metrics
from src.ops.graph_pictures import graph_picture
from src.ops.losses import cross_entropy_loss
from src.ops.result_charts import class_report

UNKNOWN = -1  # target of a node that does not count
Batch = tuple[dict[str, Tensor], Any]


class NodeClassification(Task):
    """Cross-entropy over logits (B, N, K) of nodes against their classes (B, N), measured by accuracy over nodes.

    Nodes with target -1 count neither in the loss nor in the accuracy, as those of other splits of the same graph.

    Args:
        net: maps features (B, N, D), edges (B, 2, E) and num_nodes (B,) to logits (B, N, K).
        num_classes: number of classes K, at least 2.
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3 and
            weight_decay=0.01.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name; the last matching rule applies. Each has a `pattern` such as
            net.layers.0.*, and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in
            [{pattern: net.layers.0.*, weight_decay: 5e-4}].
        macro_accuracy: whether to also log the mean per-class accuracy, as `macro_accuracy`.

    Raises:
        ValueError: num_classes is below 2, the net returns another shape, or a class is outside 0 … K - 1.
    """

    # the few nodes of a validation often have the same accuracy for many epochs
    monitor, monitor_mode = "val/loss", "min"
    loss_name = "cross-entropy"
    program_outputs = ("logits",)
    program_dims = MappingProxyType({"features": {1: "N"}, "edges": {2: "E"}})

    def __init__(
        self,
        net: nn.Module,
        num_classes: int = 10,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        parameter_groups: list[dict[str, Any]] | None = None,
        macro_accuracy: bool = False,
    ) -> None:
        if num_classes < 2:
            raise ValueError(f"num_classes: expected at least 2, got {num_classes}")
        super().__init__(net, optimizer, schedule, class_metrics(num_classes, macro=macro_accuracy), parameter_groups)
        self.num_classes = num_classes

    def setup(self, stage: str) -> None:
        if stage == "fit":
            require_class_count(self.num_classes, self.facts)

    def weight(self, batch: Batch) -> Tensor:
        """Number of nodes that count."""
        return (batch[1] != UNKNOWN).sum()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self._step("train", batch, batch_idx)[0]

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch, batch_idx)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: `label`, `target` (P,) and `probability` (P, K) of the nodes that count, of all graphs together."""
        _, logits, target = self._step("test", batch, batch_idx)
        return {"label": logits.argmax(dim=-1), "target": target, "probability": logits.float().softmax(dim=-1)}

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Returns: `label` (B, N), `probability` (B, N, K), `num_nodes` (B,) and the `target` (B, N), -1 if unknown.

        Where the batch has a dict of targets, its `names` of the nodes and which are `asked` for (B, N) as well.
        """
        inputs, target = batch
        probability = self._logits(inputs).softmax(dim=-1)  # (B, N, K)
        outputs = {"label": probability.argmax(dim=-1), "probability": probability, "num_nodes": inputs["num_nodes"]}
        if isinstance(target, dict):
            return {**outputs, **target}
        return {**outputs, "target": target if target.ndim == 2 else torch.full_like(outputs["label"], UNKNOWN)}

    def answer(self, outputs: dict[str, Any], facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Names the classes of the nodes that are asked for: `nodes`, a dict for each with node, class and probability.

        Args:
            outputs: returned by predict_step.
            facts: with `classes`; without them, numbers are used as names.
        """
        answers = []
        for b, count in enumerate(outputs["num_nodes"].tolist()):
            likeliest = outputs["probability"][b, :count].float().amax(dim=-1).tolist()
            labels, targets = outputs["label"][b, :count].tolist(), outputs["target"][b, :count].tolist()
            asked = outputs["asked"][b, :count].tolist() if "asked" in outputs else [1] * count
            names = outputs["names"][b] if "names" in outputs else list(map(str, range(count)))
            rows = []
            for node in range(count):
                if asked[node]:
                    label = class_name(facts, labels[node])
                    row: dict[str, Any] = {"node": names[node], "class": label, "probability": likeliest[node]}
                    known = {"target": class_name(facts, targets[node])} if targets[node] != UNKNOWN else {}
                    rows.append(row | known)
            answers.append({"nodes": rows})
        return answers

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        """Which classes of nodes are confused, and how far probabilities can be trusted.

        Args:
            outputs: of test_step, for all test nodes.
            facts: with `classes`; without them, numbers are used as names.
        """
        names = [class_name(facts, number) for number in range(self.num_classes)]
        report = class_report(outputs["label"], outputs["target"], outputs["probability"], names)
        report.rankings = {}  # which are of samples, that is, of graphs
        return report

    def draw(self, inputs: dict[str, Any], answer: dict[str, Any]) -> Image.Image:
        """Draws the graph, in the colours of the classes that were answered.

        Args:
            inputs: of the net, with the `names` of the nodes if there are such.
            answer: returned by `answer`.
        """
        count = int(inputs["num_nodes"])
        names = inputs.get("names") or list(map(str, range(count)))
        classes = list(self.facts.get("classes") or map(str, range(self.num_classes)))
        answered = {row["node"]: classes.index(row["class"]) for row in answer["nodes"]}
        numbers = [answered.get(name, UNKNOWN) for name in names]
        marked = [node for node, number in enumerate(numbers) if number != UNKNOWN]
        edges = inputs["edges"].cpu()
        return graph_picture(edges[:, edges[0] >= 0], names, numbers, classes, marked)

    def _logits(self, inputs: dict[str, Tensor]) -> Tensor:
        logits = self(inputs)
        expected = (*inputs["features"].shape[:2], self.num_classes)
        if logits.shape != expected:
            got = f"got {tuple(logits.shape)}; see the net's num_classes and level"
            raise UserError(f"num_classes: expected logits of nodes {expected}, {got}")
        return logits

    def _step(self, stage: str, batch: Batch, batch_idx: int) -> tuple[Tensor, Tensor, Tensor]:
        """The mean loss, and the logits (P, K) and targets (P,) of the nodes that count."""
        inputs, target = batch
        logits = self._logits(inputs)
        if target.shape != logits.shape[:2]:
            got = f"got {tuple(target.shape)}; for classes of graphs, --model Classification"
            raise UserError(f"targets: expected a class for each node, {tuple(logits.shape[:2])}, {got}")
        counts = target != UNKNOWN
        logits, known = logits[counts], target[counts]  # (P, K), (P,)
        if len(known) and (
            batch_idx == 0 or target.device.type == "cpu"
        ):  # elsewhere, looking would wait for the device
            check_labels(logits, known, self.num_classes)
        loss = cross_entropy_loss(logits, known)
        if len(known):  # metrics take no empty batches
            self.log_step(stage, loss, len(known), preds=logits, target=known)
        return loss, logits, known
