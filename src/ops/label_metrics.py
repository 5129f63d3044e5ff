"""What classifiers with several labels a sample are measured by."""

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import binary_average_precision
from torchmetrics.utilities.data import dim_zero_cat


class MeanAveragePrecision(Metric):
    """Area under the curve of precision over recall, averaged over the labels with and without a sample.

    Keeps the probabilities of all samples; NaN if there is no such label.
    """

    probability: list[Tensor]
    target: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("probability", [], dist_reduce_fx="cat")
        self.add_state("target", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Adds logits (B, K) and targets (B, K) of 0 and 1."""
        self.probability.append(preds.detach().float().sigmoid())
        self.target.append(target.detach().long())

    def compute(self) -> Tensor:
        probability, target = dim_zero_cat(self.probability), dim_zero_cat(self.target)  # (N, K) each
        scores = [
            binary_average_precision(column, has_label, validate_args=False)
            for column, has_label in zip(probability.unbind(1), target.unbind(1), strict=True)
            if 0 < int(has_label.sum()) < len(has_label)
        ]
        return torch.stack(scores).mean() if scores else probability.new_tensor(torch.nan)


class F1(Metric):
    """F1 of the labels above a threshold, 2 TP / (2 TP + FP + FN): over all labels together, or as mean over labels.

    The mean is over the labels that are predicted or in targets. 0 if there are none.

    Args:
        num_classes: number of labels K.
        threshold: probability from which on a label counts as predicted.
        macro: whether to average over labels.
    """

    hits: Tensor
    sizes: Tensor

    def __init__(self, num_classes: int, threshold: float, macro: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.macro = macro
        for name in ("hits", "sizes"):
            self.add_state(name, torch.zeros(num_classes, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Adds logits (B, K) and targets (B, K) of 0 and 1."""
        is_predicted, is_target = preds.detach().float().sigmoid() >= self.threshold, target > 0.5
        self.hits += (is_predicted & is_target).sum(dim=0)
        self.sizes += is_predicted.sum(dim=0) + is_target.sum(dim=0)

    def compute(self) -> Tensor:
        hits, sizes = (self.hits, self.sizes) if self.macro else (self.hits.sum()[None], self.sizes.sum()[None])
        scores = 2 * hits / sizes.clamp(min=1)
        occurs = sizes > 0
        return (scores * occurs).sum() / occurs.sum().clamp(min=1)
