"""Link prediction: whether two nodes of a graph are linked."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torchmetrics import Metric, MetricCollection
from torchmetrics.functional.classification import binary_auroc, binary_average_precision
from torchmetrics.utilities.data import dim_zero_cat

from playbook import OptimizerFactory, ScheduleFactory, Task, TestReport, UserError
from src.ops.losses import precise
from src.ops.score_reports import link_report

UNKNOWN = -1  # of a pair that does not count
Batch = tuple[dict[str, Tensor], dict[str, Any]]


class LinkPrediction(Task):
    """Binary cross-entropy of the products of two nodes' embeddings, for linked pairs and as many that are not.

    Measured by auroc, how often a linked pair scores above one that is not; average_precision; and hits@k, the share of
    linked pairs that score above the k-th highest of those that are not. Pairs without a link are drawn by the data:
    anew in every epoch of training, and the same in evaluation.

    Args:
        net: maps features (B, N, D), edges (B, 2, E) and num_nodes (B,) to embeddings of nodes (B, N, C).
        hits: the number k of hits@k, at least 1.
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3 and
            weight_decay=0.01.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name; the last matching rule applies. Each has a `pattern` such as
            net.layers.0.*, and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in
            [{pattern: net.layers.0.*, weight_decay: 5e-4}].

    Raises:
        ValueError: hits is below 1, or the net returns another shape.
    """

    monitor, monitor_mode = "val/auroc", "max"
    loss_name = "binary cross-entropy"
    program_outputs = ("scores",)
    program_dims = MappingProxyType({"features": {1: "N"}, "edges": {2: "E"}, "pairs": {2: "P"}})

    def __init__(
        self,
        net: nn.Module,
        hits: int = 20,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        parameter_groups: list[dict[str, Any]] | None = None,
    ) -> None:
        if hits < 1:
            raise ValueError(f"hits: expected at least 1, got {hits}")
        super().__init__(net, optimizer, schedule, MetricCollection({"ranks": _RankOfLinks(hits)}), parameter_groups)
        self.hits = hits
        self._scorer: Any = None  # in the place of the net, once a program is used

    def weight(self, batch: Batch) -> Tensor:
        """Number of pairs."""
        return (batch[1]["linked"] != UNKNOWN).sum()

    def program(self) -> nn.Module:
        """Scores (B, P) of pairs (B, 2, P) of nodes."""
        return _LinkScores(self.net)

    def program_inputs(self, batch: Batch) -> dict[str, Tensor]:
        return {**batch[0], "pairs": batch[1]["pairs"]}

    def use_program(self, program: nn.Module) -> None:
        super().use_program(self.net)
        self._scorer = program

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self._step("train", batch)[0]

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: `scores` and `linked` (P,) of the pairs that count, of all graphs together."""
        _, scores, linked = self._step("test", batch)
        return {"scores": scores, "linked": linked}

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Returns: `probability` (B, P), and the `pairs` (B, 2, P), `linked` (B, P) and `names` of the batch."""
        target = batch[1]
        return {"probability": self._scores(batch).sigmoid(), **target}

    def answer(self, outputs: dict[str, Any], facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Names the pairs of each graph: `links`, a dict for each with source, target and the probability of a link.

        Args:
            outputs: returned by predict_step.
            facts: of the training data.
        """
        answers = []
        for b, pairs in enumerate(outputs["pairs"].transpose(1, 2).tolist()):
            shares, known = outputs["probability"][b].float().tolist(), outputs["linked"][b].tolist()
            names = outputs["names"][b] if "names" in outputs else None
            rows = []
            for (source, target), share, linked in zip(pairs, shares, known, strict=True):
                if source < 0:  # padding
                    continue
                ends = (source, target) if names is None else (names[source], names[target])
                row: dict[str, Any] = {"source": ends[0], "target": ends[1], "probability": share}
                rows.append(row | ({} if linked == UNKNOWN else {"linked": bool(linked)}))
            answers.append({"links": rows})
        return answers

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        """How far linked pairs score above the others.

        Args:
            outputs: of test_step, for all test pairs.
            facts: not needed.
        """
        return link_report(outputs["scores"], outputs["linked"], self.hits)

    def _scores(self, batch: Batch) -> Tensor:
        if self._scorer is not None:
            return self._scorer(**self.program_inputs(batch))
        return link_scores(self(batch[0]), batch[1]["pairs"])

    def _step(self, stage: str, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The mean loss, and the scores and targets (P,) of the pairs that count."""
        target = batch[1]
        if not isinstance(target, Mapping) or "pairs" not in target:
            raise UserError("targets: expected pairs of nodes; set --data.level link, or --model NodeClassification")
        scores, linked = precise(self._scores(batch)), target["linked"]  # (B, P)
        counts = linked != UNKNOWN
        scores, linked = scores[counts], linked[counts]  # (P,)
        total = binary_cross_entropy_with_logits(scores, linked.to(scores.dtype), reduction="sum")
        loss = total / max(len(linked), 1)  # 0 where no pair counts
        self.log_step(stage, loss, counts.sum(), scores=scores.detach(), linked=linked)
        return loss, scores, linked


class _LinkScores(nn.Module):
    """Products of the embeddings of two nodes.

    Args:
        net: maps features, edges and num_nodes to embeddings (B, N, C).
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, features: Tensor, edges: Tensor, num_nodes: Tensor, pairs: Tensor) -> Tensor:
        return link_scores(self.net(features=features, edges=edges, num_nodes=num_nodes), pairs)


def link_scores(x: Tensor, pairs: Tensor) -> Tensor:
    """Products of the embeddings (B, N, C) of the nodes of each pair (B, 2, P) → (B, P); -1 pads."""
    ends = pairs.clamp(min=0, max=x.shape[1] - 1).unsqueeze(-1).expand(-1, -1, -1, x.shape[-1])  # (B, 2, P, C)
    source, target = (x.gather(1, end) for end in ends.unbind(dim=1))  # (B, P, C) each
    return (source * target).sum(dim=-1)  # (B, P)


class _RankOfLinks(Metric):
    """auroc, average precision and hits@k of the scores of all pairs, which are kept until the end of the epoch.

    Args:
        k: of hits@k.
    """

    scores: list[Tensor]
    linked: list[Tensor]

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("linked", [], dist_reduce_fx="cat")

    def update(self, scores: Tensor, linked: Tensor) -> None:
        self.scores.append(scores)
        self.linked.append(linked)

    def compute(self) -> dict[str, Tensor]:
        scores, linked = dim_zero_cat(self.scores), dim_zero_cat(self.linked)  # (P,)
        positive, negative = scores[linked == 1], scores[linked == 0]
        if not len(positive) or not len(negative):
            return {name: scores.new_tensor(torch.nan) for name in ("auroc", "average_precision", f"hits@{self.k}")}
        order = scores.unique(return_inverse=True)[1].double()  # outside of [0, 1], scores are taken for logits
        ranks = order / order.max().clamp(min=1)
        least = negative.topk(min(self.k, len(negative))).values[-1]
        return {
            "auroc": binary_auroc(ranks, linked, validate_args=False),
            "average_precision": binary_average_precision(ranks, linked, validate_args=False),
            f"hits@{self.k}": (positive > least).float().mean(),
        }
